// What the pages need beyond HTML: times that people read, the theme, dialogs, the search by
// keyboard, and a word when the page is not live. Everything works without it, only less well.
(() => {
  "use strict";

  // ---- times: <rel-time datetime="…"> shows how long ago, in the reader's own words. What it
  // shows is in its shadow, so that refreshing the page does not touch it.
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
      else if (mode === "local") text = at.toLocaleString();
      else if (seconds < -1) text = "in " + span(seconds);
      else if (seconds < 5) text = "just now";
      else text = span(seconds) + " ago";
      const shown = this.shadowRoot.firstChild ?? this.shadowRoot.appendChild(document.createElement("span"));
      if (shown.textContent !== text) shown.textContent = text;
      shown.title = at.toLocaleString() + " (" + at.toISOString() + ")";
    }
  }
  customElements.define("rel-time", RelTime);
  setInterval(() => document.querySelectorAll("rel-time").forEach((t) => t.show()), 1000);

  // ---- theme
  const root = document.documentElement;
  const themed = (name) => { if (name) root.dataset.theme = name; else delete root.dataset.theme; };
  try { themed(localStorage.getItem("servo-theme")); } catch { /* storage may be forbidden */ }
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
      try { localStorage.setItem("servo-theme", next); } catch { /* it lasts for this page */ }
    }
    if ("menu" in at.dataset) {
      const shown = document.querySelector(".side").classList.toggle("shown");
      at.setAttribute("aria-expanded", shown);
    }
    if (at.dataset.copy) navigator.clipboard?.writeText(at.dataset.copy);
  });

  // A select that chooses what the page shows goes there at once.
  document.addEventListener("change", (event) => {
    const at = event.target;
    if (at.matches("[data-go]")) location.href = at.selectedOptions[0].dataset.href;
    else if (at.closest("form[data-auto]")) at.form.requestSubmit();
  });
  // Filters that say nothing do not stand in the address.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "get") return;
    for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
  });
  addEventListener("pageshow", () => document.querySelectorAll("form [name]:disabled").forEach((f) => { f.disabled = false; }));

  // ---- dialogs: what is refused is said at its field, and what was typed stays.
  const told = (form, name, text) => {
    const at = [...form.elements].find((e) => name && e.name === name && e.type !== "hidden");
    const said = document.createElement("span");
    said.className = "field-error";
    said.setAttribute("role", "alert");
    said.textContent = text;
    if (!at) { form.querySelector(".end").before(said); return; }
    at.setAttribute("aria-invalid", "true");
    (at.closest("label") ?? at).append(said);
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
      const { to, wrong } = await answer.json();
      if (to) { location.assign(to); return; }
      for (const [name, text] of Object.entries(wrong)) told(form, name, text);
    } catch {
      told(form, "", "It is not known whether this was done: no answer came. Look at the page before you send it again.");
    }
    send.disabled = false;
  });
  // What is shown once stands outside of what is refreshed, and is left by its own button.
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
    if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
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

  // ---- live: say so when the page is not
  const offline = (is) => document.body.classList.toggle("offline", is);
  document.addEventListener("htmx:sse:error", (event) => {
    offline(true);
    // The session is over: the page itself leads to the login, and from there back to it.
    if (event.detail?.status === 401) location.reload();
  });
  document.addEventListener("htmx:sse:after:connection", () => offline(false));
  // The tail of a log stays at its end, unless somebody reads further up.
  const tails = () => document.querySelectorAll("[data-tail]");
  let reading = false;
  const follow = () => { if (!reading) tails().forEach((e) => { e.scrollTop = e.scrollHeight; }); };
  addEventListener("DOMContentLoaded", follow);
  document.addEventListener("htmx:sse:before:message", () => { reading = [...tails()].some((e) => e.scrollTop + e.clientHeight < e.scrollHeight - 40); });
  document.addEventListener("htmx:sse:after:message", follow);
})();
