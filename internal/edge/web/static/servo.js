// Behaviour of the pages beyond HTML: relative times, theme, dialogs, keyboard search and the
// state of the live connection. Pages also work without it.
(() => {
  "use strict";

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
    if (at.dataset.copy) navigator.clipboard?.writeText(at.dataset.copy);
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
