// The curves tab: points in, a prediction out, drawn as SVG.
import { gridOf, openEngine } from "./engine.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 12, right: 14, bottom: 30, left: 40 };
// Height of the bars of k(x, xᵢ) below the plot.
const STRIP = 58;
const BAND = 1.96;
const FRAME_MS = 520;
const el = (id) => document.getElementById(id);
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

function make(name, attributes = {}, parent = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent?.append(node);
  return node;
}

/** Round values between low and high, about `count` of them. */
function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, i) => first + i * step);
}

class Curves {
  constructor(models) {
    this.models = models;
    this.points = [];
    this.selected = -1;
    this.dragging = -1;
    this.svg = el("plot");
    this.layers = {};
    for (const name of ["axes", "strip", "band", "exactBand", "exact", "functions", "updates", "mean", "lines", "probe", "points"]) {
      this.layers[name] = make("g", { class: name }, this.svg);
    }
    this.connect();
    new ResizeObserver(() => this.resize()).observe(this.svg);
  }

  async open(model) {
    this.model = model;
    this.answer = null;
    this.drawn = null;
    this.grid = gridOf(model);
    this.t = model.updates;
    this.probe = Math.round(this.grid.length * 0.62);
    const slider = el("update");
    [slider.max, slider.value] = [model.updates, model.updates];
    el("timeline").hidden = model.updates < 1;
    for (const [id, available] of [["show-exact", model.has_exact], ["show-functions", model.functions > 0], ["show-weights", model.has_weights], ["show-updates", model.updates > 0]]) {
      el(id).closest("label").hidden = !available;
    }
    this.status("loading the model …");
    this.engine = await openEngine(model);
    this.status("");
    this.resize();
    this.example();
    await this.pending;
  }

  status(text) {
    el("curves-status").textContent = text;
  }

  // Coordinates.

  resize() {
    if (!this.model) return;
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const strip = this.has("weights") ? STRIP : 0;
    this.box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom - strip, end: height - MARGIN.bottom };
    this.drawAxes();
    this.draw();
  }

  toX(x) {
    const [low, high] = this.model.x;
    return this.box.left + ((x - low) / (high - low)) * (this.box.right - this.box.left);
  }

  toY(y) {
    const [low, high] = this.model.y;
    return this.box.bottom - ((y - low) / (high - low)) * (this.box.bottom - this.box.top);
  }

  /** The point at a place on the screen, kept within the plot. */
  at(event) {
    const { left, top } = this.svg.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    const { box } = this;
    const inside = px >= box.left && px <= box.right && py >= box.top && py <= box.bottom;
    const x = this.model.x[0] + ((px - box.left) / (box.right - box.left)) * (this.model.x[1] - this.model.x[0]);
    const y = this.model.y[0] + ((box.bottom - py) / (box.bottom - box.top)) * (this.model.y[1] - this.model.y[0]);
    return { ...this.within(x, y), inside };
  }

  within(x, y) {
    const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
    return { x: clamp(x, this.model.x), y: clamp(y, this.model.y) };
  }

  nearest(x) {
    const [low, high] = this.model.x;
    return Math.min(this.grid.length - 1, Math.max(0, Math.round(((x - low) / (high - low)) * (this.grid.length - 1))));
  }

  has(name) {
    const box = el(`show-${name}`);
    return box.checked && !box.closest("label").hidden;
  }

  // What the user does.

  connect() {
    const { svg } = this;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !this.engine) return;
      const handle = event.target.closest(".point");
      const place = this.at(event);
      if (!handle && !place.inside) return;
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      this.dragging = handle ? Number(handle.dataset.index) : this.add(place.x, place.y);
      this.select(this.dragging);
      this.setProbe(this.nearest(place.x)); // a finger does not hover
    });
    svg.addEventListener("pointermove", (event) => {
      if (!this.engine) return;
      const place = this.at(event);
      if (this.dragging >= 0) this.move(this.dragging, place.x, place.y);
      this.setProbe(this.nearest(place.x));
    });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => (this.dragging = -1));
    svg.addEventListener("contextmenu", (event) => {
      const handle = event.target.closest(".point");
      if (!handle) return;
      event.preventDefault();
      this.remove(Number(handle.dataset.index));
    });
    svg.addEventListener("keydown", (event) => this.key(event));
    // Not of the layer: a group that listens to the focus would be a stop of the keyboard itself.
    svg.addEventListener("focusin", (event) => {
      const handle = event.target.closest(".point");
      if (handle) this.select(Number(handle.dataset.index), false);
    });

    el("add").addEventListener("click", () => this.addAtProbe(true));
    el("remove").addEventListener("click", () => this.remove(this.selected));
    el("clear").addEventListener("click", () => this.replace([]));
    el("example").addEventListener("click", () => this.example());
    el("update").addEventListener("input", (event) => this.showUpdate(Number(event.target.value)));
    el("animate").addEventListener("click", () => this.animate());
    for (const id of ["show-updates", "show-exact"]) el(id).addEventListener("change", () => this.changed());
    el("show-functions").addEventListener("change", () => this.changed());
    el("show-weights").addEventListener("change", () => this.resize());
    el("model").addEventListener("change", (event) => this.open(this.models[event.target.selectedIndex]).catch((error) => this.status(error.message)));
  }

  key(event) {
    const handle = event.target.closest(".point");
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [0, 0];
    if (handle && (dx || dy)) {
      const i = Number(handle.dataset.index);
      const share = event.shiftKey ? 0.005 : 0.025;
      const { x, y } = this.points[i];
      this.move(i, x + dx * share * (this.model.x[1] - this.model.x[0]), y + dy * share * (this.model.y[1] - this.model.y[0]));
      this.setProbe(this.nearest(this.points[i].x));
    } else if (handle && ["Delete", "Backspace"].includes(event.key)) {
      this.remove(Number(handle.dataset.index), true);
    } else if (!handle && dx) {
      this.setProbe(Math.min(this.grid.length - 1, Math.max(0, this.probe + dx * (event.shiftKey ? 1 : 4))));
    } else if (!handle && ["Enter", " "].includes(event.key)) {
      this.addAtProbe(false);
    } else {
      return;
    }
    event.preventDefault();
  }

  add(x, y) {
    if (this.points.length >= this.model.most_points) {
      this.status(`At most ${this.model.most_points} points; remove some.`);
      return -1;
    }
    this.points.push({ x, y });
    this.changed();
    return this.points.length - 1;
  }

  addAtProbe(focus) {
    const y = this.answer ? this.answer.at(Math.round(this.t)).mean[this.probe] : 0;
    const place = this.within(this.grid[this.probe], y);
    const i = this.add(place.x, place.y);
    this.select(i);
    if (focus) this.layers.points.children[i]?.focus();
  }

  move(i, x, y) {
    if (i >= this.points.length) return;
    this.points[i] = this.within(x, y);
    this.changed();
  }

  remove(i, focus = false) {
    if (i < 0) return;
    this.dragging = -1;
    this.points.splice(i, 1);
    this.select(-1);
    this.changed();
    if (focus) (this.layers.points.children[Math.min(i, this.points.length - 1)] ?? this.svg).focus();
  }

  replace(points) {
    this.dragging = -1;
    this.points = points;
    this.select(-1);
    this.changed();
  }

  /** Points of a random smooth curve. */
  example() {
    const [low, high] = this.model.x;
    const size = 0.55 * this.model.y[1];
    const one = this.model.has_std ? [0.9, 1.7] : [(high - low) / (2 * Math.PI)];
    const waves = one.map((f, i) => ({ f, phase: 2 * Math.PI * Math.random(), size: (size * (0.5 + 0.5 * Math.random())) / (i + 1) }));
    const value = (x) => waves.reduce((sum, w) => sum + w.size * Math.sin(((x - low) / (high - low)) * 2 * Math.PI * w.f + w.phase), 0);
    const count = 6;
    const points = Array.from({ length: count }, (_, i) => {
      const x = low + ((high - low) * (0.06 + 0.88 * (i + 0.15 + 0.7 * Math.random()))) / count;
      return this.within(x, value(x));
    });
    this.replace(points);
  }

  select(i, focus = true) {
    this.selected = i;
    el("remove").disabled = i < 0;
    this.drawPoints();
    if (focus && i >= 0 && this.svg.contains(document.activeElement)) this.layers.points.children[i]?.focus({ preventScroll: true });
  }

  setProbe(i) {
    this.probe = i;
    this.drawProbe();
  }

  showUpdate(t) {
    this.t = t;
    el("update").value = Math.round(t);
    this.draw();
  }

  /** Plays the updates from 0 to T. */
  animate() {
    cancelAnimationFrame(this.frame);
    const last = this.model.updates;
    const jumps = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const start = performance.now();
    const frame = (now) => {
      // It rests a while at each t.
      const time = Math.max(0, now - start) / FRAME_MS;
      const part = Math.min(1, Math.max(0, (time % 1) * 1.6 - 0.6));
      const t = Math.min(last, jumps ? Math.floor(time) : Math.floor(time) + part * part * (3 - 2 * part));
      this.showUpdate(t);
      if (t < last) this.frame = requestAnimationFrame(frame);
    };
    this.frame = requestAnimationFrame(frame);
  }

  // Answers.

  /** Asks for the prediction of the points as they are now; while an answer is awaited, only the latest matters. */
  changed() {
    this.drawPoints();
    if (!this.engine) return;
    this.since ??= performance.now();
    this.isStale = true;
    this.pending ??= this.ask().finally(() => (this.pending = null));
  }

  async ask() {
    while (this.isStale) {
      this.isStale = false;
      const since = this.since;
      this.since = null;
      try {
        const answer = await this.engine.answer(this.points.map(({ x, y }) => [x, y]), this.has("exact"));
        if (answer.points.length !== this.points.length && this.isStale) continue;
        this.answer = answer;
        this.draw();
        const { duration } = performance.measure("answer", { start: since ?? performance.now(), end: performance.now() });
        el("latency").textContent = `${number(duration, 0)} ms`;
        this.status("");
      } catch (error) {
        this.status(error.message);
      }
    }
    clearTimeout(this.later);
    // Drawing functions takes longer, so it waits until the points rest.
    if (this.has("functions")) this.later = setTimeout(() => this.askFunctions(), 80);
    else this.drawn = null;
  }

  async askFunctions() {
    try {
      this.drawn = await this.engine.functions(this.points.map(({ x, y }) => [x, y]));
      this.draw();
    } catch (error) {
      this.status(error.message);
    }
  }

  // Drawing.

  path(values) {
    const [low, high] = this.model.y;
    const far = high - low;
    let d = "";
    for (let i = 0; i < values.length; i++) {
      const y = Math.min(high + far, Math.max(low - far, values[i]));
      d += `${i ? "L" : "M"}${this.toX(this.grid[i]).toFixed(1)},${this.toY(y).toFixed(1)}`;
    }
    return d;
  }

  band(mean, std) {
    const upper = Array.from(mean, (value, i) => value + BAND * std[i]);
    const lower = Array.from(mean, (value, i) => value - BAND * std[i]);
    const back = this.path(lower).slice(1).split("L").reverse().join("L");
    return `${this.path(upper)}L${back}Z`;
  }

  /** As many paths as `shapes`, in a layer. */
  fill(layer, shapes) {
    const group = this.layers[layer];
    while (group.children.length > shapes.length) group.lastChild.remove();
    while (group.children.length < shapes.length) make("path", { "clip-path": "url(#plot-area)" }, group);
    shapes.forEach((shape, i) => Object.entries(shape).forEach(([key, value]) => group.children[i].setAttribute(key, value)));
  }

  /** Mean and deviation at the t shown, which may lie between two updates while they are played. */
  current() {
    const [before, part] = [Math.floor(this.t), this.t % 1];
    const from = this.answer.at(before);
    if (!part) return from;
    const to = this.answer.at(before + 1);
    const mix = (a, b) => a && a.map((value, i) => (1 - part) * value + part * b[i]);
    return { mean: mix(from.mean, to.mean), std: mix(from.std, to.std) };
  }

  draw() {
    if (!this.box || !this.answer) return;
    const { mean, std } = this.current();
    this.fill("band", std ? [{ d: this.band(mean, std) }] : []);
    this.fill("mean", [{ d: this.path(mean) }]);
    const last = this.model.updates;
    const others = this.has("updates") ? Array.from({ length: last + 1 }, (_, t) => t) : [];
    this.fill("updates", others.map((t) => ({ d: this.path(this.answer.at(t).mean), opacity: (0.25 + (0.6 * t) / last).toFixed(2) })));
    const exact = this.has("exact") && this.answer.exact;
    this.fill("exactBand", exact ? [{ d: this.band(exact.mean, exact.std) }] : []);
    this.fill("exact", exact ? [{ d: this.path(exact.mean) }] : []);
    this.fill("functions", this.has("functions") && this.drawn ? this.drawn.map((values) => ({ d: this.path(values) })) : []);
    const t = Math.round(this.t);
    el("update-label").textContent = `t = ${t} of ${last}`;
    el("update").setAttribute("aria-valuetext", `update ${t} of ${last}`);
    this.drawPoints();
    this.drawProbe();
    this.drawLegend(Boolean(std), others.length > 0);
  }

  drawAxes() {
    const { box, model } = this;
    const group = this.layers.axes;
    group.replaceChildren();
    const clip = make("clipPath", { id: "plot-area" }, group);
    make("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }, clip);
    make("rect", { class: "area", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, rx: 6 }, group);
    for (const y of ticks(...model.y, 6)) {
      make("line", { x1: box.left, x2: box.right, y1: this.toY(y), y2: this.toY(y), class: Math.abs(y) < 1e-9 ? "zero" : "" }, group);
      make("text", { x: box.left - 8, y: this.toY(y), class: "y" }, group).textContent = number(y, y % 1 ? 1 : 0);
    }
    for (const x of ticks(...model.x, Math.max(3, Math.min(8, (box.right - box.left) / 70)))) {
      if (this.toX(x) > box.right - 18) continue; // there is the name of the axis
      make("text", { x: this.toX(x), y: box.end + 20, class: "x" }, group).textContent = number(x, x % 1 ? 1 : 0);
    }
    make("text", { x: box.right, y: box.end + 20, class: "x name" }, group).textContent = "x";
  }

  drawPoints() {
    const group = this.layers.points;
    if (!this.box) return;
    while (group.children.length > this.points.length) group.lastChild.remove();
    while (group.children.length < this.points.length) {
      const handle = make("g", { class: "point", tabindex: 0, role: "button" }, group);
      make("circle", { r: 17, class: "reach" }, handle);
      make("circle", { r: 6.5, class: "dot" }, handle);
    }
    this.points.forEach(({ x, y }, i) => {
      const handle = group.children[i];
      handle.dataset.index = i;
      handle.classList.toggle("selected", i === this.selected);
      handle.setAttribute("transform", `translate(${this.toX(x).toFixed(1)} ${this.toY(y).toFixed(1)})`);
      handle.setAttribute("aria-label", `Point ${i + 1}: x ${number(x)}, y ${number(y)}. Arrow keys move it, Delete removes it.`);
    });
    el("count").textContent = this.points.length;
  }

  /** The prediction at the cursor, and how much each point weighs in it. */
  drawProbe() {
    const { box, answer, layers } = this;
    if (!box || !answer) return;
    const { mean, std } = this.current();
    const x = this.toX(this.grid[this.probe]), y = this.toY(mean[this.probe]);
    layers.probe.replaceChildren();
    make("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, "clip-path": "url(#plot-area)" }, layers.probe);
    make("circle", { cx: x, cy: y, r: 4.5, "clip-path": "url(#plot-area)" }, layers.probe);
    el("probe-x").textContent = number(this.grid[this.probe]);
    el("probe-y").textContent = number(mean[this.probe]) + (std ? ` ± ${number(BAND * std[this.probe])}` : "");
    layers.lines.replaceChildren();
    layers.strip.replaceChildren();
    if (!this.has("weights")) return;
    const weights = answer.weightsAt(this.probe);
    const most = Math.max(...weights, 1e-9);
    const bottom = box.end - 1;
    make("text", { x: box.left, y: bottom - STRIP + 24, class: "label" }, layers.strip).textContent = "k(x, xᵢ)";
    make("line", { x1: box.left, x2: box.right, y1: bottom, y2: bottom }, layers.strip);
    answer.points.forEach(([px, py], i) => {
      const share = weights[i] / most;
      const [cx, cy] = [this.toX(px), this.toY(py)];
      const height = Math.max(1, share * (STRIP - 26));
      make("rect", { x: cx - 3, y: bottom - height, width: 6, height, rx: 2 }, layers.strip);
      make("line", { x1: x, y1: y, x2: cx, y2: cy, opacity: (0.75 * share).toFixed(2), "clip-path": "url(#plot-area)" }, layers.lines);
      make("circle", { cx, cy, r: 7 + 9 * Math.sqrt(share), opacity: (0.35 * share).toFixed(2) }, layers.lines);
    });
  }

  drawLegend(hasBand, hasUpdates) {
    const items = [
      ["key-point", "your points"],
      ["key-mean", hasBand ? "mean and 95 % band" : "prediction"],
      ...(hasUpdates ? [["key-updates", "each update"]] : []),
      ...(this.has("exact") ? [["key-exact", "exact Gaussian process"]] : []),
      ...(this.has("functions") ? [["key-functions", "sampled functions"]] : []),
    ];
    const key = items.join();
    if (key === this.legend) return;
    this.legend = key;
    el("legend").replaceChildren(
      ...items.map(([name, text]) => {
        const item = document.createElement("li");
        item.className = name;
        item.textContent = text;
        return item;
      }),
    );
  }
}

/** Starts the tab with the models that `info.json` describes. */
export async function startCurves(models) {
  const select = el("model");
  select.append(...models.map((model) => new Option(model.name)));
  select.closest("label").hidden = models.length < 2;
  await new Curves(models).open(models[0]);
}
