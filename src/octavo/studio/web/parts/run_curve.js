// The training curve of a run: its metrics are read once, then only what was added since.

import { get } from "/web/api.js";

// What a curve can show: the label of the y axis, and the columns of training and of held-out data.
const BITS = { y: "bits per byte", training: "bits_per_byte", heldOut: "held_out_bits_per_byte" };
const LOSS = { y: "loss", training: "loss", heldOut: null };
const NOT_MEASURES = ["step", "seconds", "tokens", "examples", "loss", "learning_rate", "gradient_norm",
  "bits_per_byte", "held_out_bits_per_byte"];

export class RunCurve {
  constructor(run) {
    Object.assign(this, { run, offset: 0, columns: {}, length: 0, events: [], sample: "", result: null });
  }

  /** Read what was written since the last time; returns whether there was anything. */
  async read(signal) {
    let changed = false;
    for (;;) {
      const rows = await get(`/api/curve?${new URLSearchParams({ run: this.run, offset: this.offset })}`, signal);
      if (rows.restarted) Object.assign(this, { columns: {}, length: 0, events: [], sample: "" });
      changed ||= rows.restarted || rows.offset !== this.offset || rows.result !== this.result;
      this.#add(rows);
      if (!rows.more) return changed;
    }
  }

  #add(rows) {
    const added = Math.max(0, ...Object.values(rows.columns).map((column) => column.length));
    for (const name of new Set([...Object.keys(this.columns), ...Object.keys(rows.columns)])) {
      const before = this.columns[name] ?? new Array(this.length).fill(null);
      this.columns[name] = before.concat(rows.columns[name] ?? new Array(added).fill(null));
    }
    this.length += added;
    this.events = this.events.concat(rows.events);
    Object.assign(this, { offset: rows.offset, result: rows.result, sample: rows.sample || this.sample });
  }

  /** Whether there is something to draw. */
  get empty() {
    return !this.length;
  }

  #points(x, y) {
    const [xs, ys] = [this.columns[x], this.columns[y]];
    if (!xs || !ys) return [];
    return ys.map((value, i) => [xs[i], value]).filter(([a, b]) => a != null && b != null);
  }

  /** What the curve can show, the default first: bits per byte, the loss, and what the task measures. */
  get kinds() {
    const measures = Object.keys(this.columns).filter((name) => !NOT_MEASURES.includes(name));
    return [this.columns.bits_per_byte && BITS, this.columns.loss && LOSS,
      ...measures.map((name) => ({ y: name.replaceAll("_", " "), training: null, heldOut: name }))].filter(Boolean);
  }

  /** The lines of this curve over `x`: training and held-out data. */
  lines(x, kind, colours, name = "") {
    const label = (what) => (name ? `${name}, ${what}` : what);
    return [
      kind.training && { name: label("training"), points: this.#points(x, kind.training), colour: colours[0], dash: "" },
      kind.heldOut && {
        name: label("held out"), points: this.#points(x, kind.heldOut), colour: colours[1], dots: true, dash: "6 3",
      },
    ].filter(Boolean);
  }
}

/** What several curves can show together, the default first. */
export function kindsOf(curves) {
  const [first = [LOSS], ...others] = curves.filter((one) => !one.empty).map((one) => one.kinds);
  const common = first.filter((kind) => others.every((kinds) => kinds.some((other) => other.y === kind.y)));
  return common.length ? common : [LOSS];
}
