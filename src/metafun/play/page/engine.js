// Where answers come from: the server of `metafun play`, or on a static page the same model in JavaScript.
import { MetaFun, readWeights } from "./metafun.js";
import { exactPrediction } from "./process.js";

/** Sends a request to the server; an Error with its message if it is refused. */
export async function post(path, body) {
  let response;
  try {
    response = await fetch(path, { method: "POST", body });
  } catch {
    throw new Error("metafun play has ended; start it again and open the new address.");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `the server answered ${response.status}`);
}

/** An answer: mean and standard deviation after t updates, weights, and the exact process where it is known. */
class Answer {
  constructor(points, { at, weights, exact }) {
    Object.assign(this, { points, at, weights, exact });
  }

  /** k(x, xᵢ) for each point, at entry i of the grid. */
  weightsAt(i) {
    const n = this.points.length;
    return this.weights?.subarray(i * n, (i + 1) * n);
  }
}

class ServerEngine {
  constructor(model) {
    this.model = model;
  }

  async answer(points, exact) {
    const { model } = this;
    const response = await post("curves", JSON.stringify({ model: model.name, points, exact }));
    const numbers = new Float32Array(await response.arrayBuffer());
    const m = model.grid, rows = model.updates + 1;
    let start = 0;
    const take = (count) => numbers.subarray(start, (start += count));
    const mean = take(rows * m);
    const std = model.has_std ? take(rows * m) : null;
    const weights = model.has_weights ? take(m * points.length) : null;
    const row = (array, t) => array?.subarray(t * m, (t + 1) * m);
    return new Answer(points, {
      at: (t) => ({ mean: row(mean, t), std: row(std, t) }),
      weights,
      exact: exact && model.has_exact ? { mean: take(m), std: take(m) } : null,
    });
  }

  /** Functions drawn from the model. */
  async functions(points) {
    const { model } = this;
    const response = await post("functions", JSON.stringify({ model: model.name, points }));
    const numbers = new Float32Array(await response.arrayBuffer());
    return Array.from({ length: model.functions }, (_, i) => numbers.subarray(i * model.grid, (i + 1) * model.grid));
  }
}

class LocalEngine {
  constructor(model, weights) {
    this.model = model;
    this.network = new MetaFun(readWeights(weights), model.settings);
    this.x = gridOf(model);
  }

  async answer(points, exact) {
    const { functions, weights } = this.network.encode(points, this.x);
    const decoded = [];
    return new Answer(points, {
      at: (t) => (decoded[t] ??= this.network.decode(functions[t], this.x)),
      weights,
      exact: exact && this.model.has_exact ? exactPrediction(points, this.x, this.model.exact) : null,
    });
  }
}

/** The inputs at which a model predicts. */
export function gridOf({ x: [low, high], grid }) {
  return Float32Array.from({ length: grid }, (_, i) => low + ((high - low) * i) / (grid - 1));
}

/** The engine of a model that `info.json` describes. */
export async function openEngine(model) {
  if (!model.weights) return new ServerEngine(model);
  const response = await fetch(model.weights);
  if (!response.ok) throw new Error(`${model.weights} could not be loaded (${response.status})`);
  return new LocalEngine(model, await response.arrayBuffer());
}
