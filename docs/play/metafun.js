// The forward pass of a MetaFun model for curves: deep-kernel pooling (KFP), MLP update, conditioned decoder.

/** The arrays of a safetensors file by name, each {shape, data}, without the leading axis of seeds. */
export function readWeights(buffer) {
  const view = new DataView(buffer);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__" || entry.dtype !== "F32") continue;
    const [start, end] = entry.data_offsets;
    // A copy: the data need not be aligned to four bytes in the file.
    const data = new Float32Array(buffer.slice(8 + length + start, 8 + length + end));
    arrays[name.replace(/^best\./, "")] = { shape: entry.shape.slice(1), data };
  }
  return arrays;
}

const gelu = (x) => 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** rows [n, i] times weights [i, o] plus bias [o]. */
function linear(rows, n, weights, bias) {
  const [i, o] = weights.shape;
  const w = weights.data;
  const out = new Float32Array(n * o);
  for (let row = 0; row < n; row++) {
    const sums = out.subarray(row * o, (row + 1) * o);
    sums.set(bias.data);
    let k = 0;
    // Four inputs at a time: each sum is read and written once for the four.
    for (; k + 4 <= i; k += 4) {
      const at = row * i + k;
      const a = rows[at], b = rows[at + 1], c = rows[at + 2], d = rows[at + 3];
      const p = k * o, q = p + o, r = q + o, s = r + o;
      for (let j = 0; j < o; j++) sums[j] += a * w[p + j] + b * w[q + j] + c * w[r + j] + d * w[s + j];
    }
    for (; k < i; k++) {
      const a = rows[row * i + k];
      for (let j = 0; j < o; j++) sums[j] += a * w[k * o + j];
    }
  }
  return out;
}

/** Columns of several arrays beside each other: each part is [array, columns]. */
function beside(n, ...parts) {
  const width = parts.reduce((sum, [, columns]) => sum + columns, 0);
  const out = new Float32Array(n * width);
  let start = 0;
  for (const [array, columns] of parts) {
    for (let row = 0; row < n; row++) out.set(array.subarray(row * columns, (row + 1) * columns), row * width + start);
    start += columns;
  }
  return out;
}

function activated(values) {
  for (let i = 0; i < values.length; i++) values[i] = gelu(values[i]);
  return values;
}

/** A regression model with one input and one output. */
export class MetaFun {
  /**
   * @param arrays what readWeights returned
   * @param settings {iterations, heads, min_std} of the model
   */
  constructor(arrays, { iterations, heads, min_std }) {
    Object.assign(this, { arrays, iterations, heads, minStd: min_std, stepSize: arrays.step_size.data[0] });
    const of = (pattern) => Object.keys(arrays).filter((name) => pattern.test(name)).length;
    this.embedding = this.layers("pools.0.a", of(/^pools\.0\.a\.weights/));
    this.update = this.layers("updates.0.mlp", of(/^updates\.0\.mlp\.weights/));
    this.decoder = Array.from({ length: of(/^decode\.layers\.\d+\.weights/) }, (_, l) => this.layer(`decode.layers.${l}`, 0));
    this.width = this.update.at(-1).weights.shape[1];
    const exp = (name) => Float32Array.from(arrays[`pools.0.kernel.${name}`].data, Math.exp);
    this.scales = exp("log_scale");
    this.lengths = exp("log_lengthscale");
  }

  layer(name, l) {
    return { weights: this.arrays[`${name}.weights.${l}`], bias: this.arrays[`${name}.biases.${l}`] };
  }

  layers(name, count) {
    return Array.from({ length: count }, (_, l) => this.layer(name, l));
  }

  mlp(layers, rows, n) {
    layers.forEach(({ weights, bias }, l) => {
      rows = linear(rows, n, weights, bias);
      if (l < layers.length - 1) activated(rows);
    });
    return rows;
  }

  /** a(x), the transformation of the inputs that the kernel compares. */
  embed(x) {
    return this.mlp(this.embedding, x, x.length);
  }

  /** k(x, xᵢ) of each head, [heads, m, n], for embedded x and xᵢ. */
  kernel(queries, keys, m, n) {
    const { heads } = this;
    const width = this.embedding.at(-1).weights.shape[1];
    const slice = width / heads;
    const out = new Float32Array(heads * m * n);
    for (let h = 0; h < heads; h++) {
      const variance = this.scales[h] ** 2, scale = -0.5 / this.lengths[h] ** 2;
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let sum = 0;
          const p = i * width + h * slice, q = j * width + h * slice;
          for (let d = 0; d < slice; d++) sum += (queries[p + d] - keys[q + d]) ** 2;
          out[(h * m + i) * n + j] = variance * Math.exp(scale * sum);
        }
      }
    }
    return out;
  }

  /** r − α Σᵢ k(x, xᵢ) uᵢ, each head on its slice of u. */
  step(r, kernel, u, m, n) {
    const { heads, width, stepSize } = this;
    const slice = width / heads;
    const out = Float32Array.from(r);
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < m; i++) {
        const target = i * width + h * slice;
        for (let j = 0; j < n; j++) {
          const weight = stepSize * kernel[(h * m + i) * n + j], source = j * width + h * slice;
          for (let d = 0; d < slice; d++) out[target + d] -= weight * u[source + d];
        }
      }
    }
    return out;
  }

  /** Mean and standard deviation, [m] each, from r(x). */
  decode(r, x) {
    const m = x.length;
    let h = beside(m, [r, this.width], [x, 1]);
    this.decoder.forEach(({ weights, bias }, l) => {
      if (l > 0) h = beside(m, [activated(h), this.decoder[l - 1].weights.shape[1]], [r, this.width]);
      h = linear(h, m, weights, bias);
    });
    const mean = new Float32Array(m), std = new Float32Array(m);
    for (let i = 0; i < m; i++) {
      mean[i] = h[2 * i];
      std[i] = this.minStd + (1 - this.minStd) * softplus(h[2 * i + 1]);
    }
    return { mean, std };
  }

  /**
   * The functions r⁽⁰⁾ … r⁽ᵀ⁾ at x, and the weights k(x, xᵢ) averaged over heads, [m, n].
   * @param context the points as [x, y]
   * @param x where to predict
   */
  encode(context, x) {
    const n = context.length, m = x.length;
    const cx = Float32Array.from(context, (point) => point[0]);
    const cy = Float32Array.from(context, (point) => point[1]);
    if (this.grid !== x) [this.grid, this.gridKeys] = [x, this.embed(x)];
    const keys = this.embed(cx);
    const among = this.kernel(keys, keys, n, n);
    const across = this.kernel(this.gridKeys, keys, m, n);
    let atContext = new Float32Array(n * this.width);
    const functions = [new Float32Array(m * this.width)];
    for (let t = 0; t < this.iterations; t++) {
      const u = this.mlp(this.update, beside(n, [cx, 1], [cy, 1], [atContext, this.width]), n);
      atContext = this.step(atContext, among, u, n, n);
      functions.push(this.step(functions[t], across, u, m, n));
    }
    const weights = new Float32Array(m * n);
    across.forEach((k, i) => (weights[i % (m * n)] += k / this.heads));
    return { functions, weights };
  }
}
