// Probabilities as bars.

import { percent } from "/web/parts/tokens.js";
import { h } from "/web/dom.js";

const SHOWN_BARS = 12;

/** A probability with enough digits near certainty: 99.75 %. */
export const confidence = (p) => (p < 0.995 ? percent(p) : p < 0.99995 ? `${(100 * p).toFixed(2)} %` : "over 99.99 %");

/** A bar for each [name, probability] of the first, and the sum of the rest. */
export function bars(rows, label) {
  const rest = rows.slice(SHOWN_BARS);
  return h("div", {}, h("dl", { class: "bars", "aria-label": label }, rows.slice(0, SHOWN_BARS).map(([name, p]) => [
    h("dt", {}, name), h("dd", {}, h("span", { class: "track", "aria-hidden": "true" },
      h("span", { class: "fill", style: { width: `${(100 * p).toFixed(1)}%` } })), h("span", {}, confidence(p)))])),
  rest.length > 0 && h("p", { class: "quiet" }, `and ${rest.length.toLocaleString("en")} more, `
    + `${percent(rest.reduce((sum, [, p]) => sum + p, 0))} together`));
}
