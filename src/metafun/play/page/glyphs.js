// The glyphs tab: draw a character, see its class, teach new ones.
import { post } from "./engine.js";

const el = (id) => document.getElementById(id);
const SIDE = 28;

/** Draws a picture [784 bytes as text] on a small canvas, in the colours of the theme. */
function show(canvas, picture) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(SIDE, SIDE);
  [...atob(picture)].forEach((pixel, i) => (image.data[4 * i + 3] = pixel.charCodeAt(0)));
  context.putImageData(image, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = getComputedStyle(document.documentElement).color;
  context.fillRect(0, 0, SIDE, SIDE);
  context.globalCompositeOperation = "source-over";
}

/** Calls `repaint` after the theme has changed. */
function onTheme(repaint) {
  new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
}

class Pad {
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, strokes: [] });
    let drawing = null;
    const place = (event) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      return [(event.clientX - left) / width, (event.clientY - top) / height];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      canvas.setPointerCapture(event.pointerId);
      drawing = [place(event)];
      this.strokes.push(drawing);
      this.draw();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drawing) return;
      for (const part of event.getCoalescedEvents?.() ?? [event]) drawing.push(place(part));
      this.draw();
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (drawing = null));
    onTheme(() => this.paint());
  }

  replace(strokes) {
    this.strokes = strokes;
    this.draw();
  }

  draw() {
    this.paint();
    this.changed();
  }

  paint() {
    const { canvas } = this;
    const { width, height } = canvas;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    context.strokeStyle = getComputedStyle(canvas).color;
    Object.assign(context, { lineWidth: width / 16, lineCap: "round", lineJoin: "round" });
    for (const stroke of this.strokes) {
      context.beginPath();
      stroke.forEach(([x, y], i) => (i ? context.lineTo(x * width, y * height) : context.moveTo(x * width, y * height)));
      if (stroke.length === 1) context.lineTo(stroke[0][0] * width + 0.1, stroke[0][1] * height);
      context.stroke();
    }
  }
}

class Glyphs {
  constructor(limits) {
    this.limits = limits;
    this.classes = [];
    this.pad = new Pad(el("pad"), () => this.changed());
    el("pad-clear").addEventListener("click", () => this.pad.replace([]));
    el("pad-undo").addEventListener("click", () => this.pad.replace(this.pad.strokes.slice(0, -1)));
    el("new-class").addEventListener("click", () => this.teach(null));
    el("letters").addEventListener("click", () => this.letters());
    el("no-classes").addEventListener("click", () => this.replace([]));
    onTheme(() => this.list());
    this.letters();
  }

  status(text) {
    el("glyphs-status").textContent = text;
  }

  async letters() {
    try {
      const letters = await (await post("letters", "{}")).json();
      this.replace(letters.map(({ label, picture }) => ({ label, pictures: [picture] })));
    } catch (error) {
      this.status(error.message);
    }
  }

  replace(classes) {
    this.classes = classes;
    this.answer = null;
    this.list();
    this.changed();
  }

  /** Adds the drawing to a class, or to a new one. */
  teach(known) {
    if (!this.picture) return this.status("Draw a character first.");
    if (this.classes.flatMap((entry) => entry.pictures).length >= this.limits.examples) return this.status(`At most ${this.limits.examples} examples; remove some.`);
    if (!known && this.classes.length >= this.limits.classes) return this.status(`At most ${this.limits.classes} classes; remove one.`);
    const taken = new Set(this.classes.map(({ label }) => label));
    const free = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].find((letter) => !taken.has(letter));
    const into = known ?? { label: free, pictures: [] };
    if (!known) this.classes.push(into);
    into.pictures.push(this.picture);
    this.answer = null;
    this.list();
    this.pad.replace([]);
    this.status(`Added to ${into.label}. Draw the next character.`);
  }

  // Answers: while one is awaited, only the latest drawing matters.

  changed() {
    const isEmpty = !this.pad.strokes.length;
    for (const id of ["pad-undo", "pad-clear"]) el(id).disabled = isEmpty;
    this.isStale = true;
    this.pending ??= this.ask().finally(() => (this.pending = null));
  }

  async ask() {
    while (this.isStale) {
      this.isStale = false;
      const start = performance.now();
      let answer = {};
      const examples = this.classes.flatMap(({ label, pictures }) => pictures.map((picture) => ({ label, picture })));
      if (this.pad.strokes.length) {
        try {
          const strokes = this.pad.strokes.map((stroke) => stroke.map((place) => place.map((v) => Number(v.toFixed(4)))));
          answer = await (await post("glyphs", JSON.stringify({ strokes, examples }))).json();
          this.status("");
        } catch (error) {
          this.status(error.message);
        }
      }
      if (this.isStale) continue;
      this.picture = answer.picture ?? null;
      el("seen").hidden = !this.picture;
      if (this.picture) show(el("seen-picture"), this.picture);
      this.answer = answer;
      this.show(answer);
      performance.measure("classified", { start, end: performance.now() });
    }
  }

  /** The probability of each class and the examples that the drawing resembles. */
  show({ probabilities, weights }) {
    const most = Math.max(0, ...Object.values(probabilities ?? {}));
    // Weights differ little between examples, so the outline shows where each is between the least and the largest.
    const [least, heaviest] = weights ? [Math.min(...weights), Math.max(...weights)] : [0, 0];
    let i = 0;
    [...el("classes").children].forEach((row, k) => {
      const { label, pictures } = this.classes[k];
      const share = probabilities?.[label] ?? 0;
      row.classList.toggle("best", Boolean(probabilities) && share === most);
      row.querySelector(".share").style.width = `${100 * share}%`;
      row.querySelector("output").textContent = probabilities ? `${Math.round(100 * share)} %` : "";
      row.querySelectorAll(".examples canvas").forEach((canvas) => {
        const weight = heaviest > least ? (weights[i] - least) / (heaviest - least) : 0;
        canvas.style.setProperty("--weight", weight.toFixed(2));
        canvas.classList.toggle("like", weight === 1);
        i += 1;
      });
      if (!pictures.length) row.querySelector("output").textContent = "";
    });
  }

  /** Rebuilds the rows. */
  list() {
    el("classes").replaceChildren(...this.classes.map((entry) => this.row(entry)));
    el("no-classes").disabled = !this.classes.length;
    this.show(this.answer ?? {});
  }

  row(entry) {
    const row = document.createElement("li");
    row.innerHTML = `
      <input type="text" class="label" maxlength="12" aria-label="Name of the class" />
      <div class="examples"></div>
      <output></output>
      <div class="bar-of"><div class="share"></div></div>
      <button class="teach">Add</button>
      <button class="drop icon" title="Remove the class">×</button>`;
    const name = row.querySelector("input");
    name.value = entry.label;
    name.addEventListener("change", () => {
      const isFree = name.value.trim() && !this.classes.some((other) => other !== entry && other.label === name.value.trim());
      if (isFree) entry.label = name.value.trim();
      this.answer = null;
      name.value = entry.label;
      this.list();
      this.changed();
    });
    row.querySelector(".teach").addEventListener("click", () => this.teach(entry));
    row.querySelector(".teach").setAttribute("aria-label", `Add the drawing to ${entry.label}`);
    row.querySelector(".drop").setAttribute("aria-label", `Remove ${entry.label}`);
    row.querySelector(".drop").addEventListener("click", () => this.replace(this.classes.filter((other) => other !== entry)));
    entry.pictures.forEach((picture, i) => {
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width: SIDE, height: SIDE });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Example ${i + 1} of ${entry.label}`);
      show(canvas, picture);
      row.querySelector(".examples").append(canvas);
    });
    return row;
  }
}

/** Starts the tab; `limits` are the largest numbers of classes and examples. */
export function startGlyphs(limits) {
  new Glyphs(limits);
}
