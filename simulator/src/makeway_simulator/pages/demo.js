// Draws the runs in DATA and steps through their events. Texts go in as text, never as markup.
"use strict";
const NAMES = {
  mode: "Preemption", grace_seconds: "Grace (s)", interval_seconds: "Checkpoint every (s)",
  delta: "Δ", sla_wait_seconds: "Ages after waiting (s)",
};
const chosen = { ...DATA.chosen };
let at = 0, timer = null;
const byId = (id) => document.getElementById(id);
const shown = (name, value) => value === null ? "never" : name === "mode" && value === "off" ? "none" : String(value);

function run() {
  return DATA.runs.find((each) => Object.keys(NAMES).every((name) => each[name] === chosen[name])) || DATA.runs[0];
}

function make(kind, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function choices() {
  for (const [name, title] of Object.entries(NAMES)) {
    const label = document.createElement("label");
    label.textContent = `${title} `;
    const select = document.createElement("select");
    const values = [...new Set(DATA.runs.map((each) => each[name]))];
    for (const value of values) {
      const option = document.createElement("option");
      option.textContent = shown(name, value);
      option.selected = value === chosen[name];
      select.append(option);
    }
    select.addEventListener("change", () => { chosen[name] = values[select.selectedIndex]; at = 0; draw(); });
    label.append(select, " \u00a0 ");
    byId("choices").append(label);
  }
}

function draw() {
  const current = run(), end = Math.max(...current.bars.map((bar) => bar.to), 1);
  const now = at === 0 ? -1 : current.events[Math.min(at, current.events.length) - 1].at;
  const x = (seconds) => 60 + 1020 * seconds / end;
  const svg = make("svg", { viewBox: `0 0 1100 ${DATA.gpus * 34 + 30}`, width: "100%", role: "img" });
  for (let gpu = 0; gpu < DATA.gpus; gpu++) svg.append(make("text", { x: 0, y: gpu * 34 + 20 }, `GPU ${gpu}`));
  for (const bar of current.bars) {
    if (bar.from > now) continue;
    const to = Math.min(bar.to, Math.max(now, bar.from)), over = bar.to <= now;
    for (const gpu of bar.gpus) {
      const y = gpu * 34 + 4, width = Math.max(1, x(to) - x(bar.from));
      const hue = { urgent: 10, high: 40, normal: 210, low: 150 }[DATA.classes[bar.job]] ?? 280;
      svg.append(make("rect", { x: x(bar.from), y, width, height: 26, fill: `hsl(${hue} 60% 62%)` }));
      const ready = Math.min(bar.ready, to);
      if (ready > bar.from) svg.append(make("rect", { x: x(bar.from), y, width: x(ready) - x(bar.from), height: 26, class: "startup" }));
      if (bar.cut && over) svg.append(make("rect", { x: x(to) - 4, y, width: 4, height: 26, class: "cut" }));
      if (width > 46) svg.append(make("text", { x: x(bar.from) + 4, y: y + 17, style: "fill:#111" }, bar.job));
    }
  }
  if (now >= 0) svg.append(make("line", { x1: x(now), x2: x(now), y1: 0, y2: DATA.gpus * 34 + 6, stroke: "currentColor" }));
  for (let tick = 0; tick <= 8; tick++) {
    svg.append(make("text", { x: x(end * tick / 8) - 8, y: DATA.gpus * 34 + 22, class: "label" }, `${Math.round(end * tick / 8)} s`));
  }
  byId("chart").replaceChildren(svg);
  byId("clock").textContent = `${now < 0 ? 0 : now} s; step ${at} of ${current.events.length}; GPU-seconds lost in all: ${current.lost}`;
  byId("said").textContent = at ? current.events[at - 1].text : "Nothing has happened yet.";
  byId("events").replaceChildren(...current.events.slice(Math.max(0, at - 8), at).map((event) => {
    const item = document.createElement("li");
    item.textContent = `${event.at} s, ${event.kind}: ${event.text}`;
    return item;
  }));
  byId("events").start = Math.max(0, at - 8) + 1;
}

function move(by) {
  at = Math.max(0, Math.min(run().events.length, at + by));
  if (at === run().events.length) pause();
  draw();
}

function pause() {
  clearInterval(timer);
  timer = null;
  byId("play").textContent = "Play";
}

byId("step").addEventListener("click", () => move(1));
byId("back").addEventListener("click", () => move(-1));
byId("again").addEventListener("click", () => { pause(); at = 0; draw(); });
byId("play").addEventListener("click", () => {
  if (timer !== null) { pause(); return; }
  if (at === run().events.length) at = 0;
  byId("play").textContent = "Pause";
  timer = setInterval(() => move(1), 900);
});
choices();
draw();
