// What a reading says: the totals, and a card about one token.

import { h } from "/web/dom.js";
import { percent, quoted } from "/web/parts/tokens.js";

const count = new Intl.NumberFormat("en");
export const number = (value) => count.format(value);

/** Bits: with two decimals while that says something; null is what cannot be. */
export const bits = (value) => (value == null ? "∞" : value < 1000 ? value.toFixed(2) : number(Math.round(value)));

/** The sums of one reading. A token that cannot be costs without end. */
export function sums(told) {
  const never = told.bits.some((one) => one == null);
  const total = never ? null : told.bits.reduce((sum, one) => sum + one, 0);
  const bytes = told.bytes.reduce((sum, one) => sum + one, 0);
  const each = total == null || !told.bits.length ? null : 2 ** (total / told.bits.length);
  return { tokens: told.tokens.length, bytes, bits: total, rate: total == null || !bytes ? null : total / bytes, each };
}

/** A table of the sums of one reading or two. */
export function totals(names, readings) {
  const rows = readings.map(sums);
  const cells = (one) => [number(one.tokens), number(one.bytes), bits(one.bits), one.rate?.toFixed(3) ?? "∞",
    one.each == null ? "∞" : one.each < 1e6 ? one.each.toFixed(2) : one.each.toExponential(2)];
  const heads = ["tokens", "bytes", "bits", "bits per byte", "perplexity per token"];
  const [a, b] = rows;
  const apart = b && a.bits != null && b.bits != null && h("tr", {}, h("th", { scope: "row" }, "difference"),
    h("td", {}), h("td", {}), h("td", { class: "r" }, signed(a.bits - b.bits, 2)),
    h("td", { class: "r" }, signed(a.rate - b.rate, 3)), h("td", {}));
  return h("div", { class: "scroll" }, h("table", { class: "totals" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "run"),
      heads.map((name) => h("th", { scope: "col", class: "r" }, name)))),
    h("tbody", {}, rows.map((one, i) => h("tr", {}, h("th", { scope: "row" }, names[i]),
      cells(one).map((cell) => h("td", { class: "r" }, cell)))), apart)));
}

export const signed = (value, digits) =>
  `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`;

/** The likeliest tokens with bars; the one that came is marked, and stands last where it was none of them. */
export function bars(candidates, token, own) {
  const rows = candidates.map(([name, p]) => ({ name, p, came: name === token }));
  if (!rows.some((row) => row.came)) rows.push({ name: token, p: own, came: true });
  const most = Math.max(...rows.map((row) => row.p), 1e-9);
  return h("table", { class: "likely" }, h("caption", {}, "expected"), h("tbody", {}, rows.map((row) =>
    h("tr", { class: row.came ? "came" : null },
      h("th", { scope: "row" }, row.name, row.came && h("small", {}, " came")),
      h("td", { class: "barcell", "aria-hidden": "true" },
        h("span", { style: { width: `${(100 * row.p) / most}%` } })),
      h("td", { class: "r" }, percent(row.p))))));
}

/** All about token i of a reading; `looked` comes later, or never. */
export function about(told, i, looked) {
  const own = told.bits[i] == null ? 0 : 2 ** -told.bits[i];
  const each = told.bytes[i] > 1 && told.bits[i] != null ? `, ${bits(told.bits[i] / told.bytes[i])} per byte` : "";
  return [
    h("p", {}, h("b", {}, quoted(told.tokens[i])),
      ` ${bits(told.bits[i])} bits${each}, rank ${number(told.ranks[i])}`),
    bars(told.candidates[i], told.tokens[i], own),
    told.contexts && h("p", {}, order(told.contexts[i])),
    looked && seen(told, looked, i),
  ];
}

function order(before) {
  if (!before) return "The counts have this token, but never after the one before it.";
  return `The longest n-gram found ends with it and has ${before} token${before > 1 ? "s" : ""} before it.`;
}

function seen(told, looked, i) {
  if (i >= looked.places.length) return h("p", { class: "quiet" }, "So far on, what it looked at is not told.");
  if (!looked.places[i].length) return h("p", { class: "quiet" }, "It had nothing to look at.");
  const name = (place) => (place ? told.tokens[place - 1] : "▷ the beginning");
  const back = (place) => (place ? `${i - place + 1} back` : "");
  const row = (place, n) => h("tr", {}, h("th", { scope: "row" }, name(place)),
    h("td", { class: "quiet" }, back(place)), h("td", { class: "r" }, percent(looked.shares[i][n])));
  return h("table", { class: "likely" }, h("caption", {}, "looked at"), h("tbody", {}, looked.places[i].map(row)));
}

/** Mark in the text what token i looked at, the more the stronger. */
export function markSeen(spans, looked, i, before) {
  before.forEach((span) => { span.style.boxShadow = ""; });
  if (!looked || i >= looked.places.length) return [];
  return looked.places[i].flatMap((place, n) => {
    if (!place || !spans[place - 1]) return [];
    const share = Math.round(20 + 80 * looked.shares[i][n]);
    spans[place - 1].style.boxShadow = `inset 0 -3px 0 color-mix(in srgb, var(--series0) ${share}%, transparent)`;
    return [spans[place - 1]];
  });
}
