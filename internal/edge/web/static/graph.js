// The viewport of graphs: fit, zoom, pan, minimap, search, the paths of a box, and states that a live
// page sends without the picture.
(() => {
  "use strict";
  const views = new WeakMap();
  const svgNS = "http://www.w3.org/2000/svg";
  const clamp = (n, low, high) => Math.min(Math.max(n, low), high);

  const open = (view) => {
    const stage = view.querySelector("[data-graph-stage]"), svg = stage?.querySelector("svg.draw");
    if (!svg) return null;
    const whole = { w: svg.viewBox.baseVal.width, h: svg.viewBox.baseVal.height };
    const boxes = [...svg.querySelectorAll("a.box")].map((element) => {
      const r = element.querySelector("rect");
      return { element, rect: r, x: +r.getAttribute("x"), y: +r.getAttribute("y"), w: +r.getAttribute("width"), h: +r.getAttribute("height"), text: element.getAttribute("aria-label").toLowerCase(), up: [], down: [] };
    });
    for (const path of svg.querySelectorAll("[data-edge]")) {
      const [from, to] = path.dataset.edge.split(" ").map(Number);
      if (!boxes[from] || !boxes[to]) continue;
      boxes[from].down.push({ to, path });
      boxes[to].up.push({ to: from, path });
    }
    let scale = 1, x = 0, y = 0;
    const map = view.querySelector("[data-graph-map]"), frame = document.createElementNS(svgNS, "rect");
    frame.setAttribute("class", "graph-frame");
    const show = () => {
      const w = stage.clientWidth / scale, h = stage.clientHeight / scale;
      x = whole.w <= w ? (whole.w - w) / 2 : clamp(x, -40, whole.w - w + 40);
      y = whole.h <= h ? (whole.h - h) / 2 : clamp(y, -40, whole.h - h + 40);
      svg.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
      for (const [name, value] of [["x", x], ["y", y], ["width", w], ["height", h]]) frame.setAttribute(name, value);
      map.toggleAttribute("hidden", whole.w <= w && whole.h <= h);
    };
    const zoom = (factor, cx = stage.clientWidth / 2, cy = stage.clientHeight / 2) => {
      const next = clamp(scale * factor, 0.05, 3), px = x + cx / scale, py = y + cy / scale;
      scale = next; x = px - cx / scale; y = py - cy / scale;
      show();
    };
    const fit = () => { scale = clamp(Math.min((stage.clientWidth - 16) / whole.w, (stage.clientHeight - 16) / whole.h), 0.05, 1); x = y = 0; show(); };
    const centre = (box) => { scale = Math.max(scale, 0.8); x = box.x + box.w / 2 - stage.clientWidth / scale / 2; y = box.y + box.h / 2 - stage.clientHeight / scale / 2; show(); };

    // The stage has the height of the picture, within the window.
    stage.classList.add("is-viewport");
    stage.style.height = clamp(whole.h + 24, 160, Math.max(320, innerHeight - 320)) + "px";
    svg.setAttribute("width", "100%");
    svg.setAttribute("height", "100%");
    map.setAttribute("viewBox", `0 0 ${whole.w} ${whole.h}`);
    const dots = boxes.map((b) => {
      const dot = document.createElementNS(svgNS, "rect");
      for (const [name, value] of [["x", b.x], ["y", b.y], ["width", b.w], ["height", b.h]]) dot.setAttribute(name, value);
      dot.setAttribute("class", b.rect.getAttribute("class").replace("s-", "f-"));
      return dot;
    });
    map.replaceChildren(...dots, frame);
    fit();

    // ---- pointer and keyboard
    let drag = null;
    stage.addEventListener("pointerdown", (e) => { if (e.button === 0) drag = { px: e.clientX, py: e.clientY, x, y, moved: false }; });
    addEventListener("pointermove", (e) => {
      if (!drag) return;
      const dx = e.clientX - drag.px, dy = e.clientY - drag.py;
      if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
      if (drag.moved) { x = drag.x - dx / scale; y = drag.y - dy / scale; show(); }
    });
    addEventListener("pointerup", () => { if (drag?.moved) stage.addEventListener("click", (e) => e.preventDefault(), { capture: true, once: true }); setTimeout(() => { drag = null; }); });
    svg.addEventListener("dragstart", (e) => e.preventDefault());
    stage.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return; // the wheel alone scrolls the page
      e.preventDefault();
      const r = stage.getBoundingClientRect();
      zoom(e.deltaY < 0 ? 1.15 : 1 / 1.15, e.clientX - r.left, e.clientY - r.top);
    }, { passive: false });
    view.addEventListener("keydown", (e) => {
      if (e.target.matches("input") || e.ctrlKey || e.metaKey) return;
      if (e.key === "+" || e.key === "=") zoom(1.25);
      else if (e.key === "-") zoom(0.8);
      else if (e.key === "0") fit();
      else return;
      e.preventDefault();
    });
    view.addEventListener("click", (e) => {
      const act = e.target.closest("[data-graph-do]")?.dataset.graphDo;
      if (act === "fit") fit();
      if (act === "in") zoom(1.25);
      if (act === "out") zoom(0.8);
    });
    map.addEventListener("pointerdown", (e) => {
      const r = map.getBoundingClientRect(), fitScale = Math.min(r.width / whole.w, r.height / whole.h);
      const left = (r.width - whole.w * fitScale) / 2, top = (r.height - whole.h * fitScale) / 2;
      x = (e.clientX - r.left - left) / fitScale - stage.clientWidth / scale / 2;
      y = (e.clientY - r.top - top) / fitScale - stage.clientHeight / scale / 2;
      show();
    });
    addEventListener("resize", show);

    // ---- the paths and the panel of a box
    const panel = view.querySelector("[data-graph-panel]");
    const walk = (from, way, found) => {
      const next = [from];
      while (next.length) for (const { to, path } of boxes[next.pop()][way]) { path.classList.add("on-path"); if (!found.has(to)) { found.add(to); next.push(to); } }
    };
    const light = (i) => {
      svg.querySelectorAll(".on-path").forEach((p) => p.classList.remove("on-path"));
      svg.classList.toggle("is-lit", i >= 0);
      boxes.forEach((b) => b.element.classList.remove("on-path"));
      if (i < 0) return;
      const up = new Set(), down = new Set();
      walk(i, "up", up);
      walk(i, "down", down);
      for (const k of [i, ...up, ...down]) boxes[k].element.classList.add("on-path");
      const [title, detail] = boxes[i].element.getAttribute("aria-label").split(/: (.*)/s);
      const line = (tag, text) => { const e = document.createElement(tag); e.textContent = text; return e; };
      panel.replaceChildren(line("b", title), line("span", detail ?? ""), line("span", `${up.size} upstream, ${down.size} downstream`));
      panel.hidden = false;
    };
    const indexOf = (e) => boxes.findIndex((b) => b.element === e.target.closest?.("a.box"));
    svg.addEventListener("pointerover", (e) => light(indexOf(e)));
    svg.addEventListener("pointerleave", () => { light(-1); panel.hidden = true; });
    svg.addEventListener("focusin", (e) => { const i = indexOf(e); light(i); if (i >= 0 && e.target.matches(":focus-visible")) centre(boxes[i]); });
    svg.addEventListener("focusout", () => { light(-1); panel.hidden = true; });

    // ---- search
    const search = view.querySelector("[data-graph-search]"), found = view.querySelector("[data-graph-found]");
    let hits = [], hit = 0;
    search.addEventListener("input", () => {
      const text = search.value.trim().toLowerCase();
      hits = text ? boxes.filter((b) => b.text.includes(text)) : [];
      boxes.forEach((b) => b.element.classList.toggle("is-hit", hits.includes(b)));
      found.textContent = text ? `${hits.length} found` : "";
      hit = 0;
      if (hits.length) centre(hits[0]);
    });
    search.addEventListener("keydown", (e) => { if (e.key === "Enter" && hits.length) { e.preventDefault(); centre(hits[hit = (hit + (e.shiftKey ? hits.length - 1 : 1)) % hits.length]); } });

    // ---- states of a live page
    let last = null;
    const apply = (looks, states) => {
      const now = states.split("\n");
      now.forEach((state, i) => {
        if (last?.[i] === state || !boxes[i]) return;
        let tone, shape, detail;
        const code = /^(\d+)(?: (\d+))?$/.exec(state);
        if (code) { [tone, shape, detail] = looks[+code[1]]; if (code[2]) detail += ` ${code[2]} %`; } else [tone, shape, detail] = state.split(/,(.*?),(.*)/s);
        const b = boxes[i], [label, was] = b.element.getAttribute("aria-label").split(/: (.*)/s);
        const partition = code && !looks.some((l) => was.startsWith(l[2])) ? was.split(" · ")[0] + " · " : "";
        detail = partition + detail;
        b.rect.setAttribute("class", `s-${tone}` + (b.rect.classList.contains("here") ? " here" : ""));
        dots[i].setAttribute("class", `f-${tone}`);
        const at = b.element.querySelector(".box-shape"), of = svg.querySelector(`defs [data-shape="${shape}"] svg`);
        if (at && of) { const drawn = of.cloneNode(true); drawn.setAttribute("class", `f-${tone}` + (shape === "again" ? " spin" : "")); at.replaceChildren(drawn); }
        if (last !== null) {
          const text = b.element.querySelector("text.dim");
          if (text) text.textContent = detail.length > 26 ? detail.slice(0, 26) + "…" : detail;
          b.element.setAttribute("aria-label", label + ": " + detail);
          const title = b.element.querySelector("title");
          if (title) title.textContent = label + ": " + detail;
        }
      });
      last = now;
    };
    return { apply, zoom, fit, get scale() { return scale; } };
  };

  const update = async () => {
    for (const view of document.querySelectorAll("[data-graph]")) {
      if (!view.firstElementChild) { // the layout has changed: a live page sends no picture
        const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
        const fresh = page.getElementById(view.id);
        if (fresh) view.replaceChildren(...fresh.childNodes);
      }
      if (!views.has(view)) { const opened = open(view); if (!opened) continue; views.set(view, opened); view.graphView = opened; }
      const states = document.querySelector(`[data-graph-states="${view.id}"]`);
      if (states) views.get(view).apply(states.dataset.looks.split(";").map((l) => l.split(",")), states.dataset.states);
    }
  };
  update();
  document.addEventListener("htmx:sse:after:message", update);
})();
