// The log viewer: reads the lines of one attempt, or of all tasks of a run, and keeps only the visible
// ones in the document, so that a million lines scroll smoothly.
(() => {
  "use strict";
  const view = document.querySelector("[data-log]");
  if (!view) return;
  const $ = (name) => view.querySelector(`[data-log-${name}]`);
  const box = $("lines"), space = $("space"), search = $("search"), level = $("level"), followBox = $("follow"), wrapBox = $("wrap"), status = $("status"), matches = $("matches");
  const rowHeight = 19, maxLines = 1_000_000, maxTasks = 500, pollEvery = 2000;
  const levels = { DEBUG: 1, INFO: 2, WARN: 3, ERROR: 4 };

  // ---- the lines: text, source and level of each; shown are the indexes that pass the filter.
  const lines = [], sources = [], numbers = [], ranks = [];
  let shown = null, filtered = 0, full = false;
  const tasks = []; // { id, label, next, done, rest, count, last }

  const rankOf = (text, before) => {
    const found = /^\S{0,30} ?(?:\u001b\[[\d;]*m)?(DEBUG|INFO|WARN|ERROR)\b/.exec(text.slice(0, 60));
    return found ? levels[found[1]] : before;
  };
  const append = (source, text, complete) => {
    const task = tasks[source];
    const parts = ((task.rest ?? "") + text).split("\n");
    task.rest = complete ? "" : parts.pop();
    if (complete && parts.at(-1) === "") parts.pop();
    for (const part of parts) {
      if (lines.length >= maxLines) { full = true; return; }
      task.count = (task.count ?? 0) + 1;
      task.last = rankOf(part, task.last ?? 2);
      lines.push(part); sources.push(source); numbers.push(task.count); ranks.push(task.last);
    }
  };

  // ---- filter: lines with the text, and of the level or above. New lines extend the last result.
  let wanted = "", least = 0;
  const passes = (i) => ranks[i] >= least && (!wanted || lines[i].toLowerCase().includes(wanted));
  const extend = () => {
    if (!wanted && least <= 1) { shown = null; filtered = lines.length; return; }
    shown ??= [];
    for (; filtered < lines.length; filtered++) if (passes(filtered)) shown.push(filtered);
  };
  const refilter = () => {
    wanted = search.value.trim().toLowerCase();
    least = levels[level.value] ?? 0;
    shown = null; filtered = 0;
    extend();
    matches.textContent = shown ? `${shown.length.toLocaleString()} of ${lines.length.toLocaleString()} lines` : "";
    box.scrollTop = 0;
    draw();
  };
  const total = () => shown ? shown.length : lines.length;
  const at = (row) => shown ? shown[row] : row;

  // ---- drawing: colours of terminals, marks of the search, one element for each visible line.
  const colours = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
  const styled = (text, put) => {
    let colour = "", bold = false, dim = false, from = 0;
    const flush = (to) => { if (to > from) put(text.slice(from, to), [colour && "ansi-" + colour, bold && "ansi-bold", dim && "ansi-dim"].filter(Boolean).join(" ")); };
    for (const m of text.matchAll(/\u001b(?:\[([\d;?]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|.)|[\r\u0007\b]/g)) {
      flush(m.index);
      from = m.index + m[0].length;
      if (m[2] !== "m") continue;
      for (const code of m[1].split(";").map(Number)) {
        if (code === 0) { colour = ""; bold = dim = false; }
        else if (code === 1) bold = true;
        else if (code === 2) dim = true;
        else if (code === 22) bold = dim = false;
        else if (code === 39) colour = "";
        else if (code >= 30 && code <= 37) colour = colours[code - 30];
        else if (code >= 90 && code <= 97) colour = colours[code - 90];
        else if (code === 38 || code === 48) break;
      }
    }
    flush(text.length);
  };
  const marked = (parent, text) => {
    if (!wanted) { parent.append(text); return; }
    const low = text.toLowerCase();
    let from = 0;
    for (let i = low.indexOf(wanted); i >= 0; i = low.indexOf(wanted, from)) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(i, i + wanted.length);
      parent.append(text.slice(from, i), mark);
      from = i + wanted.length;
    }
    parent.append(text.slice(from));
  };
  const single = view.dataset.task;
  const lineElement = (i) => {
    const row = document.createElement("div");
    row.className = "log-line" + (ranks[i] === 4 ? " is-error" : ranks[i] === 3 ? " is-warn" : "");
    const link = document.createElement("a");
    link.className = "log-number";
    link.textContent = numbers[i];
    const hash = "#L" + numbers[i];
    link.href = single ? hash : `${location.pathname}?task=${tasks[sources[i]].id}${hash}`;
    link.title = "Link to this line";
    row.append(link);
    if (!single) {
      const source = document.createElement("span");
      source.className = "log-source";
      source.textContent = source.title = tasks[sources[i]].label;
      row.append(source);
    }
    const text = document.createElement("span");
    text.className = "log-text";
    styled(lines[i], (piece, classes) => {
      if (!classes) { marked(text, piece); return; }
      const part = document.createElement("span");
      part.className = classes;
      marked(part, piece);
      text.append(part);
    });
    row.append(text);
    if (single && hash === location.hash) row.classList.add("is-target");
    return row;
  };
  const page = document.createElement("div");
  page.className = "log-page";
  space.append(page);
  let drawn = "";
  const draw = () => {
    const n = total(), first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - 10), last = Math.min(n, first + Math.ceil(box.clientHeight / rowHeight) + 30);
    const key = [first, last, n, wanted, least, wrapBox.checked, location.hash].join();
    if (key === drawn) return;
    drawn = key;
    space.style.height = Math.max(n * rowHeight, 1) + "px"; // the style of an element, which the content policy permits
    page.style.transform = `translateY(${first * rowHeight}px)`;
    const rows = [];
    for (let row = first; row < last; row++) rows.push(lineElement(at(row)));
    page.replaceChildren(...rows);
  };
  const toEnd = () => { box.scrollTop = box.scrollHeight; };
  const refresh = () => {
    extend();
    if (shown) matches.textContent = `${shown.length.toLocaleString()} of ${lines.length.toLocaleString()} lines`;
    draw();
    if (followBox.checked) { toEnd(); draw(); }
  };
  const goToHash = () => {
    const n = Number(/^#L(\d+)$/.exec(location.hash)?.[1]);
    if (!single || !n) return;
    followBox.checked = false;
    if (search.value || level.value) { search.value = level.value = ""; refilter(); } // a link leads to the line among its neighbours
    box.scrollTop = Math.max(0, (n - 1) * rowHeight - box.clientHeight / 3);
    drawn = "";
    draw();
  };

  // ---- reading
  const base = view.dataset.log;
  const get = async (path, query) => {
    const answer = await fetch(base + path + "?" + new URLSearchParams(Object.entries(query).filter(([, v]) => v)), { headers: { Accept: "application/json" } });
    if (answer.status === 401) { location.reload(); throw new Error("logged out"); }
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error);
    return body;
  };
  const read = async (source) => {
    const task = tasks[source];
    for (;;) {
      const part = await get("/" + task.id, { attempt: single ? view.dataset.attempt : "", page: task.next });
      task.next = part.next ?? task.next;
      task.dropped = part.dropped ?? 0;
      task.done = !part.next;
      append(source, part.text, task.done);
      if (!part.more || full) return;
      if (single) refresh();
    }
  };
  // byTime orders the lines of several tasks by the time at their beginning.
  const byTime = () => {
    let last = "";
    const times = lines.map((l) => { const t = /^\d{4}-\d\d-\d\dT[\d:.]+Z/.exec(l)?.[0]; return (last = t ?? last); });
    const order = lines.map((_, i) => i).sort((a, b) => times[a] < times[b] ? -1 : times[a] > times[b] ? 1 : a - b);
    for (const list of [lines, sources, numbers, ranks]) {
      const sorted = order.map((i) => list[i]);
      for (let i = 0; i < sorted.length; i++) list[i] = sorted[i];
    }
    shown = null; filtered = 0;
  };
  let known = new Map(), tasksNext = "", runDone = false;
  const readTasks = async () => {
    for (;;) {
      const part = await get("", { page: tasksNext });
      for (const t of part.tasks) {
        const had = known.get(t.id);
        if (had === undefined && tasks.length < maxTasks) { known.set(t.id, tasks.length); tasks.push({ id: t.id, label: t.label }); }
      }
      runDone = part.done;
      if (!part.next || tasks.length >= maxTasks) { tasksNext = ""; return; }
      tasksNext = part.next;
    }
  };
  const report = () => {
    const dropped = tasks.reduce((n, t) => n + (t.dropped ?? 0), 0);
    const parts = [lines.length === 1 ? "1 line" : `${lines.length.toLocaleString()} lines`];
    if (full) parts.push("the first million lines are shown");
    if (tasks.length >= maxTasks) parts.push(`logs of the first ${maxTasks} tasks`);
    if (dropped) parts.push(`${dropped.toLocaleString()} bytes in the middle were dropped`);
    if (tasks.every((t) => t.done) && (single || runDone)) parts.push("complete");
    else parts.push("live");
    status.textContent = lines.length || tasks.length ? parts.join(" · ") : "No log output yet";
  };
  const round = async () => {
    if (single) { if (!tasks.length) tasks.push({ id: single, label: "" }); } else await readTasks();
    const open = tasks.map((_, i) => i).filter((i) => !tasks[i].done);
    const first = lines.length === 0;
    await Promise.all([0, 1, 2, 3].map(async (lane) => { for (let i = lane; i < open.length; i += 4) await read(open[i]); }));
    if (first && !single) byTime();
  };
  const loop = async () => {
    try {
      if (!document.hidden) {
        await round();
        const before = drawn === "";
        refresh();
        if (before) goToHash();
        report();
      }
    } catch (error) {
      status.textContent = error.message || "No response from the server";
      document.body.classList.add("offline");
    }
    if (full || (tasks.length && tasks.every((t) => t.done) && (single || runDone))) return;
    setTimeout(loop, pollEvery);
  };

  // ---- controls
  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refilter, 150); });
  level.addEventListener("change", refilter);
  wrapBox.addEventListener("change", () => { box.classList.toggle("is-wrapped", wrapBox.checked); drawn = ""; draw(); });
  followBox.addEventListener("change", refresh);
  box.addEventListener("scroll", () => {
    if (followBox.checked && box.scrollTop + box.clientHeight < box.scrollHeight - 4 * rowHeight) followBox.checked = false;
    requestAnimationFrame(draw);
  });
  box.addEventListener("click", (event) => { if (event.target.closest(".log-number") && single) setTimeout(() => { drawn = ""; draw(); }); });
  addEventListener("resize", () => { drawn = ""; draw(); });
  addEventListener("hashchange", goToHash);
  $("save")?.addEventListener("click", save);
  document.querySelector("[data-log-save]")?.addEventListener("click", save);
  function save() {
    const plain = lines.map((l, i) => tasks[sources[i]].label + " " + l.replace(/\u001b(?:\[[\d;?]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|.)|[\r\u0007\b]/g, "") + "\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(plain, { type: "text/plain" }));
    link.download = `run-${view.dataset.run}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  // Tests read and fill the viewer through this object.
  view.logView = { lines, append: (text) => { if (!tasks.length) tasks.push({ id: single ?? "", label: "" }); append(0, text, false); refresh(); report(); } };
  loop();
})();
