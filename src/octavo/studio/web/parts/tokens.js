// A text as its tokens, each on the colour of what it cost.

import { h } from "/web/dom.js";

export const STEPS = [0.5, 1, 2, 3, 4, 6, 8]; // bits per byte at which the colour changes

/** The colour's class of a token that cost `bits` for `bytes` bytes; null bits are impossible. */
export function level(bits, bytes) {
  if (bits == null) return "never";
  return `s${STEPS.filter((step) => bits / Math.max(1, bytes) >= step).length}`;
}

/** What the colours mean. */
export function legend() {
  const bounds = [0, ...STEPS];
  const names = bounds.map((low, i) => (i + 1 < bounds.length ? `${low}–${bounds[i + 1]}` : `${low} and more`));
  return h("ul", { class: "legend", "aria-label": "bits per byte" },
    names.map((name, i) => h("li", { class: `s${i}` }, name)), h("li", { class: "never" }, "impossible"));
}

/** A share as per cent: 12 %, 0.3 %, 0.001 %. */
export function percent(p) {
  if (p >= 0.0995) return `${(100 * p).toFixed(0)} %`;
  return p >= 1e-6 ? `${+(100 * p).toPrecision(2)} %` : "0 %";
}
