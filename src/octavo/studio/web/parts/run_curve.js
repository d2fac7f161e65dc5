// The curve of a run as training writes it: read once, then only what came since.

import { get } from "/web/api.js";

// What is drawn upwards, of a run that has it: its columns for what it learns from and for what is held out.
const BITS = { y: "bits per byte", learnt: "bits_per_byte", held: "held_out_bits_per_byte" };
const NATS = { y: "nats a token", learnt: "loss", held: "held_out" };
const LOSS = { y: "loss", learnt: "loss", held: null };

export class Curve {
  constructor(run) {
    Object.assign(this, { run, offset: 0, columns: {}, length: 0, events: [], sample: "", result: null });
  }

  /** Read what was written since the last time; whether there was anything. */
  async read(signal) {
    let news = false;
    for (;;) {
      const told = await get(`/api/curve?${new URLSearchParams({ run: this.run, offset: this.offset })}`, signal);
      if (told.again) Object.assign(this, { columns: {}, length: 0, events: [], sample: "" });
      news ||= told.again || told.offset !== this.offset || told.result !== this.result;
      this.#add(told);
      if (!told.more) return news;
    }
  }

  #add(told) {
    const added = Math.max(0, ...Object.values(told.columns).map((column) => column.length));
    for (const name of new Set([...Object.keys(this.columns), ...Object.keys(told.columns)])) {
      const before = this.columns[name] ?? new Array(this.length).fill(null);
      this.columns[name] = before.concat(told.columns[name] ?? new Array(added).fill(null));
    }
    this.length += added;
    this.events = this.events.concat(told.events);
    Object.assign(this, { offset: told.offset, result: told.result, sample: told.sample || this.sample });
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

  /** What can be drawn upwards. */
  get kind() {
    return this.columns.bits_per_byte ? BITS : this.columns.held_out ? NATS : LOSS;
  }

  /** The lines of this curve over `x`: what it learns from, and what is held out. */
  lines(x, kind, colours, name = "") {
    const called = (what) => (name ? `${name}, ${what}` : what);
    return [
      kind.learnt && { name: called("learnt from"), points: this.#points(x, kind.learnt), colour: colours[0] },
      kind.held && {
        name: called("held out"), points: this.#points(x, kind.held), colour: colours[1], dots: true, dash: "6 3",
      },
    ].filter(Boolean);
  }
}

/** What several curves can be drawn in together: bits per byte, or the loss of each. */
export function kindOf(curves) {
  const kinds = new Set(curves.filter((one) => !one.empty).map((one) => one.kind));
  return kinds.size === 1 ? [...kinds][0] : kinds.size ? LOSS : BITS;
}
