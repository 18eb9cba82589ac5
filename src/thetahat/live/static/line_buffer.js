/* Bounded history of a line in typed arrays, thinned out for drawing without losing a peak. */

const MOST = 8192; // points kept of a line
const NOTHING = new Float64Array(0);

const toNumber = (value) => (value === null || value === undefined ? NaN : Number(value));

export class Series {
  constructor(x = [], y = []) {
    this.x = new Float64Array(MOST);
    this.y = new Float64Array(MOST);
    this.length = 0;
    this.extend(x, y);
  }

  get last() { return this.length ? this.x[this.length - 1] : -Infinity; }
  get first() { return this.length ? this.x[0] : Infinity; }

  extend(x, y) {
    const count = Math.min(x.length, y.length);
    for (let k = 0; k < count; k += 1) {
      const at = toNumber(x[k]);
      if (!Number.isFinite(at) || at < this.last) continue; // what was drawn stays
      if (this.length === MOST) this.halve();
      this.x[this.length] = at;
      this.y[this.length] = toNumber(y[k]);
      this.length += 1;
    }
  }

  /** Of every four points the lowest and the highest stay, in their order; a gap stays a gap. */
  halve() {
    const { x, y } = this;
    let out = 0;
    for (let k = 0; k + 3 < this.length; k += 4) {
      let low = k, high = k;
      for (let i = k; i < k + 4; i += 1) {
        if (Number.isNaN(y[i])) { low = i; high = k; break; }
        if (y[i] < y[low]) low = i;
        if (y[i] > y[high]) high = i;
      }
      const a = Math.min(low, high), b = Math.max(low, high) === a ? k + 3 : Math.max(low, high);
      const xa = x[a], ya = y[a], xb = x[b], yb = y[b];
      x[out] = xa; y[out] = ya; x[out + 1] = xb; y[out + 1] = yb;
      out += 2;
    }
    this.length = out;
  }

  /** Index of the first point at or after a time. */
  after(time) {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** {x, y} from one time to another, with the points beside, in about so many points. */
  between(begin, end, most) {
    const from = Math.max(0, this.after(begin) - 1), to = Math.min(this.length, this.after(end) + 1);
    if (to <= from) return { x: NOTHING, y: NOTHING };
    if (to - from <= most) return { x: this.x.slice(from, to), y: this.y.slice(from, to) };
    return this.thinned(from, to, most);
  }

  /** The lowest and highest point of every stretch; stretches stand still while time goes on, so that lines do not shimmer. */
  thinned(from, to, most) {
    const { x, y } = this;
    const wanted = (2 * (x[to - 1] - x[from])) / most;
    const step = wanted > 0 ? 2 ** Math.ceil(Math.log2(wanted)) : 1;
    const outX = new Float64Array(to - from), outY = new Float64Array(to - from);
    let out = 0, k = from;
    while (k < to) {
      const bucket = Math.floor(x[k] / step);
      let low = k, high = k, gap = -1;
      for (; k < to && Math.floor(x[k] / step) === bucket; k += 1) {
        if (Number.isNaN(y[k])) gap = k;
        if (y[k] < y[low] || Number.isNaN(y[low])) low = k;
        if (y[k] > y[high] || Number.isNaN(y[high])) high = k;
      }
      const kept = [...new Set([low, high, gap, k === to ? to - 1 : -1])].filter((i) => i >= 0).sort((a, b) => a - b);
      for (const i of kept) { outX[out] = x[i]; outY[out] = y[i]; out += 1; }
    }
    return { x: outX.subarray(0, out), y: outY.subarray(0, out) };
  }
}
