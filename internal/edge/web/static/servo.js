// Behaviour of the pages beyond HTML: relative times, theme, dialogs, keyboard search and the
// state of the live connection. Pages also work without it.
(() => {
  "use strict";

  // ---- one time setting: times are shown in the reader's zone or in UTC, with 24 hours and the zone
  let zone = "";
  try { zone = localStorage.getItem("servo-zone") ?? ""; } catch { /* storage may be disabled */ }
  const clock = (at) => at.toLocaleString("en-GB", { timeZone: zone || undefined, day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false, timeZoneName: "short" });
  const showZone = () => document.querySelectorAll("[data-zone-switch]").forEach((b) => { b.textContent = zone || "Local"; b.title = zone ? "Times in UTC. Select for your time zone." : "Times in your time zone, " + Intl.DateTimeFormat().resolvedOptions().timeZone + ". Select for UTC."; });
  addEventListener("DOMContentLoaded", showZone);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-zone-switch]")) return;
    zone = zone ? "" : "UTC";
    try { localStorage.setItem("servo-zone", zone); } catch { /* applies to this page only */ }
    showZone();
    document.querySelectorAll("rel-time").forEach((t) => t.show());
  });

  // ---- recent pages, for the command palette
  const recentPages = () => { try { return JSON.parse(localStorage.getItem("servo-recent") ?? "[]"); } catch { return []; } };
  addEventListener("DOMContentLoaded", () => {
    const title = document.querySelector("h1")?.textContent.trim();
    if (!title || !location.pathname.startsWith("/ui/tenants/")) return;
    const here = { title, at: location.pathname, kind: /\/(run|task|config|pipeline|asset|backfill)s\/[^/]+(?:\/[^/]+)?$/.exec(location.pathname)?.[1] ?? "page" };
    try { localStorage.setItem("servo-recent", JSON.stringify([here, ...recentPages().filter((r) => r.at !== here.at)].slice(0, 8))); } catch { /* no recent pages */ }
  });

  // ---- command palette (ctrl-K) and the list of keys (?)
  const element = (tag, classes, text) => { const e = document.createElement(tag); if (classes) e.className = classes; if (text) e.textContent = text; return e; };
  const entry = (kind, label, at, act) => {
    const e = element(at ? "a" : "button", "palette-entry");
    if (at) e.href = at; else { e.type = "button"; e.addEventListener("click", () => { palette.close(); act(); }); }
    e.setAttribute("role", "option");
    e.append(element("span", "kind", kind), element("span", "", label));
    return e;
  };
  let palette = null, asked = 0;
  const openPalette = () => {
    if (!palette) {
      palette = element("dialog", "palette");
      palette.setAttribute("aria-label", "Command palette");
      const input = element("input");
      input.type = "search"; input.placeholder = "Go to a page, find an object, or run an action"; input.maxLength = 200; input.setAttribute("aria-label", "Command"); input.autocomplete = "off";
      const list = element("div", "palette-list");
      list.setAttribute("role", "listbox");
      palette.append(input, list);
      document.body.append(palette);
      let waiting;
      input.addEventListener("input", () => { clearTimeout(waiting); fill(list, input.value.trim()); waiting = setTimeout(() => search(list, input.value.trim()), 150); });
      palette.addEventListener("keydown", (event) => {
        const all = [...list.querySelectorAll(".palette-entry")], now = all.indexOf(document.activeElement);
        if (event.key === "ArrowDown" && all.length) { event.preventDefault(); all[Math.min(now + 1, all.length - 1)].focus(); }
        if (event.key === "ArrowUp") { event.preventDefault(); (now > 0 ? all[now - 1] : input).focus(); }
        if (event.key === "Escape") { event.preventDefault(); palette.close(); } // a search field would only be cleared
        if (event.key === "Enter" && document.activeElement === input && all.length) { event.preventDefault(); all[0].click(); }
      });
      palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    }
    const input = palette.querySelector("input");
    input.value = "";
    fill(palette.querySelector(".palette-list"), "");
    if (!palette.open) palette.showModal();
    input.focus();
  };
  const fill = (list, text) => {
    const low = text.toLowerCase(), has = (label) => label.toLowerCase().includes(low);
    const entries = [];
    for (const b of document.querySelectorAll("main .actions > button[data-dialog], main .actions > a.button")) {
      const label = b.textContent.trim();
      if (has(label)) entries.push(entry("action", label, b.href, () => b.click()));
    }
    for (const a of document.querySelectorAll(".side nav a")) if (has(a.textContent)) entries.push(entry("page", a.textContent.trim(), a.href));
    if (has("switch theme")) entries.push(entry("action", "Switch theme", "", () => document.querySelector("[data-theme-switch]").click()));
    if (has("keyboard shortcuts")) entries.push(entry("action", "Keyboard shortcuts", "", showKeys));
    for (const r of recentPages()) if (r.at !== location.pathname && (has(r.title) || has(r.at))) entries.unshift(entry("recent", `${r.title} (${r.kind})`, r.at));
    list.replaceChildren(...entries.slice(0, 30));
  };
  const search = async (list, text) => {
    if (!text) return;
    const mine = ++asked;
    const answer = await fetch("/ui/find?" + new URLSearchParams({ q: text }));
    if (mine !== asked || !answer.ok) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    const entries = [...found.querySelectorAll("a")].map((a) => entry(a.children[0].textContent, a.children[1].textContent + (a.children[2]?.textContent ? " · " + a.children[2].textContent : ""), a.getAttribute("href")));
    list.prepend(...entries);
  };
  let keys = null;
  const showKeys = () => {
    if (!keys) {
      keys = element("dialog");
      const pad = element("div", "pad");
      pad.append(element("h2", "", "Keyboard shortcuts"));
      const table = element("dl", "facts");
      for (const [key, what] of [["Ctrl K", "command palette"], ["/", "search"], ["?", "this list"], ["g then o, r, p, c, a, l", "overview, runs, pipelines, configs, assets, alerts"], ["+ − 0", "zoom a graph, fit it"], ["Esc", "close a dialog"]]) {
        const dt = element("dt");
        dt.append(element("kbd", "", key));
        table.append(dt, element("dd", "", what));
      }
      const end = element("div", "end"), close = element("button", "", "Close");
      close.type = "button"; close.dataset.close = "";
      end.append(close);
      pad.append(table, end);
      keys.append(pad);
      document.body.append(keys);
    }
    if (!keys.open) keys.showModal();
  };
  let prefix = 0;
  const pages = { o: "/ui/", r: "/ui/runs", p: "/ui/pipelines", c: "/ui/configs", a: "/ui/assets", l: "/ui/alerts" };
  document.addEventListener("keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); openPalette(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog, [contenteditable]")) return;
    if (event.key === "?") { event.preventDefault(); showKeys(); return; }
    if (prefix && Date.now() - prefix < 1000 && pages[event.key]) {
      const link = [...document.querySelectorAll(".side nav a")].find((a) => new URL(a.href).pathname === pages[event.key]);
      if (link) location.assign(link.href);
    }
    prefix = event.key === "g" ? Date.now() : 0;
  });

  // ---- times: <rel-time datetime="…"> shows the time since or until. Its text is in the shadow
  // DOM, so that a refresh of the page does not change it.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const span = (seconds) => {
    seconds = Math.round(Math.abs(seconds));
    for (let i = 0; i < units.length; i++) {
      const [name, size] = units[i];
      if (seconds < size && name !== "s") continue;
      const whole = Math.floor(seconds / size);
      const next = units[i + 1];
      const rest = next && whole < 10 ? Math.floor((seconds % size) / next[1]) : 0;
      return rest ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
    }
    return "0 s";
  };
  class RelTime extends HTMLElement {
    static observedAttributes = ["datetime", "mode"];
    connectedCallback() {
      if (!this.shadowRoot) this.attachShadow({ mode: "open" });
      this.show();
    }
    attributeChangedCallback() { if (this.shadowRoot) this.show(); }
    show() {
      const at = new Date(this.getAttribute("datetime"));
      if (isNaN(at)) return;
      const seconds = (Date.now() - at) / 1000;
      const mode = this.getAttribute("mode");
      let text;
      if (mode === "elapsed") text = span(seconds);
      else if (mode === "local") text = clock(at);
      else if (seconds < -1) text = "in " + span(seconds);
      else if (seconds < 5) text = "just now";
      else text = span(seconds) + " ago";
      const shown = this.shadowRoot.firstChild ?? this.shadowRoot.appendChild(document.createElement("span"));
      if (shown.textContent !== text) shown.textContent = text;
      shown.title = clock(at) + " (" + at.toISOString() + ")";
    }
  }
  customElements.define("rel-time", RelTime);
  setInterval(() => document.querySelectorAll("rel-time").forEach((t) => t.show()), 1000);

  // ---- theme
  const root = document.documentElement;
  const themed = (name) => { if (name) root.dataset.theme = name; else delete root.dataset.theme; };
  try { themed(localStorage.getItem("servo-theme")); } catch { /* storage may be disabled */ }
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  // ---- clicks
  document.addEventListener("click", (event) => {
    const at = event.target.closest("[data-dialog], [data-close], [data-theme-switch], [data-menu], [data-copy]");
    if (!at) return;
    if (at.dataset.dialog) document.getElementById(at.dataset.dialog)?.showModal();
    if ("close" in at.dataset) (at.closest("dialog")?.close(), at.closest(".toast")?.remove());
    if ("themeSwitch" in at.dataset) {
      const next = dark() ? "light" : "dark";
      themed(next);
      try { localStorage.setItem("servo-theme", next); } catch { /* applies to this page only */ }
    }
    if ("menu" in at.dataset) {
      const shown = document.querySelector(".side").classList.toggle("shown");
      at.setAttribute("aria-expanded", shown);
    }
    if (at.dataset.copy) {
      navigator.clipboard?.writeText(at.dataset.copy);
      at.classList.add("is-copied");
      setTimeout(() => at.classList.remove("is-copied"), 1200);
    }
  });

  // Dragging over a timeline zooms into that part.
  let drag = null;
  document.addEventListener("pointerdown", (event) => {
    const bars = event.target.closest("[data-timeline] .t-bars");
    if (bars && event.button === 0) drag = { bars, from: event.clientX, of: bars.closest("[data-timeline]").dataset };
  });
  document.addEventListener("pointerup", (event) => {
    if (drag && Math.abs(event.clientX - drag.from) > 12) {
      const r = drag.bars.getBoundingClientRect(), whole = drag.of.end - drag.of.begin;
      const time = (x) => Math.round(+drag.of.begin + whole * Math.min(Math.max((x - r.left) / r.width, 0), 1));
      const [a, b] = [time(drag.from), time(event.clientX)].sort((m, n) => m - n), at = new URL(location.href);
      at.searchParams.set("from", a);
      at.searchParams.set("to", b);
      location.assign(at);
    }
    drag = null;
  });

  // A select of the page or of a filter applies at once.
  document.addEventListener("change", (event) => {
    const at = event.target;
    if (at.matches("[data-go]")) location.href = at.selectedOptions[0].dataset.href;
    else if (at.closest("form[data-auto]")) at.form.requestSubmit();
  });
  // Empty filters are left out of the address.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "get") return;
    for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
  });
  addEventListener("pageshow", () => document.querySelectorAll("form [name]:disabled").forEach((f) => { f.disabled = false; }));

  // ---- dialogs: errors appear at their fields, and the input is kept.
  const showError = (form, name, text) => {
    const at = [...form.elements].find((e) => name && e.name === name && e.type !== "hidden");
    const message = document.createElement("span");
    message.className = "field-error";
    message.setAttribute("role", "alert");
    message.textContent = text;
    if (!at) { form.querySelector(".end").before(message); return; }
    at.setAttribute("aria-invalid", "true");
    (at.closest("label") ?? at).append(message);
    at.focus();
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.method !== "post" || !form.closest("dialog")) return;
    event.preventDefault();
    const send = event.submitter ?? form.querySelector("[type=submit]");
    if (send.disabled) return;
    const body = new URLSearchParams(new FormData(form));
    form.querySelectorAll(".field-error").forEach((e) => e.remove());
    form.querySelectorAll("[aria-invalid]").forEach((e) => e.removeAttribute("aria-invalid"));
    send.disabled = true;
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { "X-Servo-Dialog": "1" } });
      if (answer.ok && answer.headers.get("Content-Type")?.startsWith("text/html")) { once(form.closest("dialog"), await answer.text()); return; }
      const { to, errors } = await answer.json();
      if (to) { location.assign(to); return; }
      for (const [name, text] of Object.entries(errors)) showError(form, name, text);
    } catch {
      showError(form, "", "No response from the server. Reload the page to check whether the action was executed.");
    }
    send.disabled = false;
  });
  // A secret is outside of the refreshed part of the page and has its own close button.
  const once = (dialog, html) => {
    dialog.close();
    const shown = document.createElement("dialog");
    shown.innerHTML = `<div class="pad">${html}</div>`;
    shown.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(shown);
    shown.showModal();
  };

  // ---- search by keyboard
  const box = () => document.querySelector(".search input");
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      box()?.focus();
      box()?.select();
      return;
    }
    const search = event.target.closest?.(".search");
    if (!search) return;
    const links = [...search.querySelectorAll(".suggest a")];
    const now = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown" && links.length) { event.preventDefault(); links[Math.min(now + 1, links.length - 1)].focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); (now > 0 ? links[now - 1] : box()).focus(); }
    if (event.key === "Escape") { search.querySelector(".suggest").replaceChildren(); box().focus(); }
  });
  document.addEventListener("focusin", (event) => {
    if (!event.target.closest(".search")) document.querySelector(".suggest")?.replaceChildren();
  });

  // ---- live: mark a page that is not
  const offline = (is) => document.body.classList.toggle("offline", is);
  document.addEventListener("htmx:sse:error", (event) => {
    offline(true);
    // The session has ended: a reload redirects to the login, which leads back to this page.
    if (event.detail?.status === 401) location.reload();
  });
  document.addEventListener("htmx:sse:after:connection", () => offline(false));
  // The end of a log stays visible, unless the reader has scrolled up.
  const tails = () => document.querySelectorAll("[data-tail]");
  let reading = false;
  const follow = () => { if (!reading) tails().forEach((e) => { e.scrollTop = e.scrollHeight; }); };
  addEventListener("DOMContentLoaded", follow);
  document.addEventListener("htmx:sse:before:message", () => { reading = [...tails()].some((e) => e.scrollTop + e.clientHeight < e.scrollHeight - 40); });
  document.addEventListener("htmx:sse:after:message", follow);
})();
