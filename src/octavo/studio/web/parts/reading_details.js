// A text read by a model: the totals, and the details of one token.

import { h } from "/web/dom.js";
import { percent, quoted } from "/web/parts/tokens.js";

const count = new Intl.NumberFormat("en");
export const number = (value) => count.format(value);

/** Bits, with two decimals where they matter; null is infinite. */
export const bits = (value) => (value == null ? "∞" : value < 1000 ? value.toFixed(2) : number(Math.round(value)));

/** A table of the scores of one reading or two, as `octavo eval` gives them. */
export function totals(names, readings) {
  const rows = readings.map((reading) => reading.score);
  const cells = (one) => [number(one.tokens), number(one.bytes), bits(one.bits), one.bits_per_byte?.toFixed(4) ?? "∞",
    one.perplexity == null ? "∞" : one.perplexity < 1e6 ? one.perplexity.toFixed(2) : one.perplexity.toExponential(2)];
  const heads = ["tokens", "bytes", "bits", "bits per byte", "perplexity per token"];
  const [a, b] = rows;
  const difference = b && a.bits != null && b.bits != null && h("tr", {}, h("th", { scope: "row" }, "difference"),
    h("td", {}), h("td", {}), h("td", { class: "r" }, signed(a.bits - b.bits, 2)),
    h("td", { class: "r" }, signed(a.bits_per_byte - b.bits_per_byte, 4)), h("td", {}));
  return h("div", { class: "scroll" }, h("table", { class: "totals" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "run"),
      heads.map((name) => h("th", { scope: "col", class: "r" }, name)))),
    h("tbody", {}, rows.map((one, i) => h("tr", {}, h("th", { scope: "row" }, names[i]),
      cells(one).map((cell) => h("td", { class: "r" }, cell)))), difference)));
}

export const signed = (value, digits) =>
  `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`;

/** The most probable tokens with bars; the actual one is marked, and stands last where it was none of them. */
function candidateTable(candidates, token, own) {
  const rows = candidates.map(([name, p]) => ({ name, p, actual: name === token }));
  if (!rows.some((row) => row.actual)) rows.push({ name: token, p: own, actual: true });
  const most = Math.max(...rows.map((row) => row.p), 1e-9);
  return h("table", { class: "likely" }, h("caption", {}, "most probable"), h("tbody", {}, rows.map((row) =>
    h("tr", { class: row.actual ? "actual" : null },
      h("th", { scope: "row" }, row.name, row.actual && h("small", {}, " actual")),
      h("td", { class: "barcell", "aria-hidden": "true" },
        h("span", { style: { width: `${(100 * row.p) / most}%` } })),
      h("td", { class: "r" }, percent(row.p))))));
}

/** The details of token i of a reading; `attention` may come later, or never. */
export function tokenDetails(reading, i, attention) {
  const own = reading.bits[i] == null ? 0 : 2 ** -reading.bits[i];
  const each = reading.bytes[i] > 1 && reading.bits[i] != null
    ? `, ${bits(reading.bits[i] / reading.bytes[i])} per byte` : "";
  return [
    h("p", {}, h("b", {}, quoted(reading.tokens[i])),
      ` ${bits(reading.bits[i])} bits${each}, rank ${number(reading.ranks[i])}`),
    candidateTable(reading.candidates[i], reading.tokens[i], own),
    reading.contexts && h("p", {}, contextNote(reading.contexts[i])),
    attention && attentionTable(reading, attention, i),
  ];
}

function contextNote(length) {
  if (!length) return "The training text has this token, but never after the one before it.";
  return `The longest known n-gram that ends with it has ${length} token${length > 1 ? "s" : ""} of context.`;
}

function attentionTable(reading, attention, i) {
  const { positions, weights } = attention;
  if (i >= positions.length) return h("p", { class: "quiet" }, "Attention is not computed this far into the text.");
  if (!positions[i].length) return h("p", { class: "quiet" }, "There was nothing to attend to.");
  const name = (position) => (position ? reading.tokens[position - 1] : "▷ the beginning");
  const back = (position) => (position ? `${i - position + 1} back` : "");
  const row = (position, n) => h("tr", {}, h("th", { scope: "row" }, name(position)),
    h("td", { class: "quiet" }, back(position)), h("td", { class: "r" }, percent(weights[i][n])));
  return h("table", { class: "likely" }, h("caption", {}, "attends to"), h("tbody", {}, positions[i].map(row)));
}

/** Underline in the text what token i attends to, the more the stronger; `before` are the spans marked now. */
export function markAttention(spans, attention, i, before) {
  before.forEach((span) => { span.style.boxShadow = ""; });
  if (!attention || i >= attention.positions.length) return [];
  return attention.positions[i].flatMap((position, n) => {
    const span = position && spans[position - 1];
    if (!span) return [];
    const strength = Math.round(20 + 80 * attention.weights[i][n]);
    span.style.boxShadow = `inset 0 -3px 0 color-mix(in srgb, var(--series0) ${strength}%, transparent)`;
    return [span];
  });
}
