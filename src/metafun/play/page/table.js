// The table tab: a CSV file in, predictions and scores out.
import { post } from "./engine.js";

const el = (id) => document.getElementById(id);
const MOST_MB = 5;

function cell(row, text, kind = "td") {
  const node = document.createElement(kind);
  node.textContent = text;
  row.append(node);
  return node;
}

/** A number with about four digits. */
function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(2).replace(/-/g, "−");
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3).replace("-", "−");
}

const whole = (value) => (Number.isInteger(value) ? String(value) : short(value));

function fillTable(table, header, rows, draw = () => {}) {
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  header.forEach((name) => (cell(head, name, "th").scope = "col"));
  const body = table.createTBody();
  for (const values of rows) {
    const row = body.insertRow();
    values.forEach((value, i) => draw(cell(row, header[i] === "row" ? whole(value) : short(value)), value, header[i], values));
  }
}

class Table {
  constructor() {
    this.turn = 0;
    const zone = el("drop-zone");
    el("file").addEventListener("change", (event) => {
      if (event.target.files[0]) this.open(event.target.files[0]);
      event.target.value = "";
    });
    for (const name of ["dragover", "dragleave", "drop"]) {
      zone.addEventListener(name, (event) => {
        event.preventDefault();
        zone.classList.toggle("over", name === "dragover");
      });
    }
    zone.addEventListener("drop", (event) => event.dataTransfer.files[0] && this.open(event.dataTransfer.files[0]));
    document.querySelectorAll("[data-example]").forEach((button) => button.addEventListener("click", () => this.example(button.dataset.example)));
    el("target").addEventListener("change", () => {
      this.stop();
      this.suggest();
    });
    el("problem").addEventListener("change", () => this.stop());
    el("predict").addEventListener("click", () => this.predict());
    el("download").addEventListener("click", () => this.download());
    el("copy").addEventListener("click", () => this.copy());
  }

  status(text, isError = false, isBusy = false) {
    el("table-status").textContent = text;
    el("table-status").classList.toggle("error", isError);
    document.querySelectorAll("#table button").forEach((button) => (button.disabled = isBusy));
  }

  /** Awaits `load` and shows its answer or its error, unless another request was made meanwhile; the buttons wait. */
  async busy(text, load, show) {
    const turn = ++this.turn;
    this.status(text, false, true);
    try {
      const answer = await load();
      if (turn !== this.turn) return;
      show(answer);
      this.status("");
    } catch (error) {
      if (turn === this.turn) this.status(error.message, true);
    }
  }

  /** Ignores the answer that is awaited. */
  stop() {
    this.turn++;
    this.status("");
  }

  async example(problem) {
    let file = null;
    await this.busy(
      "loading the example …",
      async () => (await post("example", JSON.stringify({ problem }))).json(),
      ({ name, csv }) => (file = new File([csv], name)),
    );
    if (file) await this.open(file);
  }

  async open(file) {
    for (const id of ["choices", "results"]) el(id).hidden = true;
    const load = async () => {
      if (file.size > MOST_MB * 2 ** 20) throw new Error(`${file.name} is larger than ${MOST_MB} MB; use metafun in Python for it.`);
      this.file = file;
      return (await this.send({})).json();
    };
    let isOpen = false;
    await this.busy(`reading ${file.name} …`, load, ({ rows, columns, target }) => {
      this.columns = columns;
      el("table-name").textContent = `${file.name}: ${rows.toLocaleString("en")} rows, ${columns.length} columns`;
      el("target").replaceChildren(...columns.map(({ name, missing }) => new Option(missing ? `${name} (${missing} missing)` : name, name)));
      el("target").value = target;
      el("choices").hidden = false;
      this.suggest();
      isOpen = true;
    });
    if (isOpen) await this.predict();
  }

  send(options) {
    return post(`table?${new URLSearchParams({ name: this.file.name, ...options })}`, this.file);
  }

  /** Chooses between classes and numbers as the column looks. */
  suggest() {
    el("problem").value = this.columns.find(({ name }) => name === el("target").value).problem;
    el("results").hidden = true;
  }

  async predict() {
    const [target, problem] = [el("target").value, el("problem").value];
    el("results").hidden = true;
    await this.busy("predicting … the first table takes some seconds", async () => (await this.send({ target, problem })).json(), (answer) => {
      this.answer = answer;
      this.show();
    });
  }

  show() {
    const { scores, code, notes, header, rows, labelled, predicted, held_out_only } = this.answer;
    el("held-out").textContent = `${scores.held_out} of ${labelled} labelled rows, predicted from the other ${scores.fitted}.`;
    fillTable(el("scores"), ["", "MetaFun", scores.linear], scores.metrics);
    el("code").textContent = code;
    el("table-notes").replaceChildren(...notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
    const more = rows.length < predicted ? ` The first ${rows.length} are shown.` : "";
    el("predicted").textContent = held_out_only
      ? `Every row has an entry, so these are the ${predicted} held-out rows.${more}`
      : `${predicted} rows without an entry, predicted from all ${labelled} labelled ones.${more}`;
    const low = header.findIndex((name) => name.endsWith("_q0.025"));
    const [least, most] = low < 0 ? [0, 1] : [Math.min(...rows.map((row) => row[low])), Math.max(...rows.map((row) => row[low + 1]))];
    const place = (value) => `${(100 * (value - least)) / (most - least || 1)}%`;
    const shown = low < 0 ? header : [...header.slice(0, low - 1), "95 % interval", ""];
    const content = low < 0 ? rows : rows.map((row) => [...row.slice(0, low - 1), `${short(row[low])} … ${short(row[low + 1])}`, ""]);
    fillTable(el("predictions"), shown, content, (node, value, name, values) => {
      if (name.startsWith("P(")) {
        node.classList.add("probability");
        if (value < 0.001) node.textContent = "< 0.001";
        node.style.setProperty("--share", `${100 * value}%`);
      } else if (low >= 0 && name === "") {
        const row = rows[content.indexOf(values)];
        node.innerHTML = '<div class="range"><i></i><b></b></div>';
        const [interval, mean] = node.querySelectorAll("i, b");
        interval.style.left = place(row[low]);
        interval.style.right = `calc(100% - ${place(row[low + 1])})`;
        mean.style.left = place(row[low - 2]);
      }
    });
    el("results").hidden = false;
  }

  download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.answer.csv], { type: "text/csv" }));
    link.download = this.file.name.replace(/(\.[^.]*)?$/, "-predicted.csv");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async copy() {
    await navigator.clipboard.writeText(el("code").textContent);
    el("copy").textContent = "Copied";
    setTimeout(() => (el("copy").textContent = "Copy"), 1500);
  }
}

/** Starts the tab. */
export function startTable() {
  new Table();
}
