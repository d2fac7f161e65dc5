// Two readings of the same bytes: which model needs fewer bits where, and both texts with their own tokens.

import { h, replace } from "/web/dom.js";
import { bits, signed, tokenDetails } from "/web/parts/reading_details.js";
import { coloured, legend, level, quoted, walk } from "/web/parts/tokens.js";

const STEPS = [0.25, 1, 2.5]; // differences in bits per byte at which the colour changes

/** The colour class of a span: p where the first model needs fewer bits, q where the second does. */
function colourOf(first, second, bytes) {
  if (first == null && second == null) return "";
  if (first == null || second == null) return first == null ? "q3" : "p3";
  const each = (first - second) / Math.max(1, bytes);
  const step = STEPS.filter((one) => Math.abs(each) >= one).length;
  return step ? `${each < 0 ? "p" : "q"}${step}` : "";
}

/** Of each token, the span that it belongs to. */
function spanOf(ends) {
  const of = [];
  ends.forEach((end, span) => { while (of.length < end) of.push(span); });
  return of;
}

/** `at` is the position to begin at: span 5 ("s5"), or token 5 of the first text ("a5") or of the second ("b5");
 * onmove(at) is called with a new position. */
export function readingComparison(names, compared, card, at, onmove) {
  const readings = [compared.first, compared.second];
  const ends = [compared.first_ends, compared.second_ends];
  const of = ends.map(spanOf);
  let marked = [];

  function mark(span) {
    marked.forEach((one) => one.classList.remove("same"));
    marked = [together.spans[span], ...texts.flatMap((text, side) =>
      text.spans.slice(span ? ends[side][span - 1] : 0, ends[side][span]))].filter(Boolean);
    marked.forEach((one) => one.classList.add("same"));
  }

  const together = walk("The text, coloured by which model needs fewer bits: the arrow keys move", (span) => {
    mark(span);
    const [a, b] = [compared.first_bits[span], compared.second_bits[span]];
    replace(card, [h("p", {}, h("b", {}, quoted(compared.spans[span]))),
      h("table", {}, h("tbody", {}, names.map((name, side) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", {}, tokensOf(readings[side], ends[side], span)),
        h("td", { class: "r" }, `${bits([a, b][side])} bits`))))),
      a != null && b != null && h("p", {}, verdict(names, a - b))]);
  }, () => {}, (span) => onmove(`s${span}`));
  const texts = names.map((name, side) => walk(`The text as ${name} reads it: the arrow keys move`, (i) => {
    mark(of[side][i]);
    replace(card, [h("p", { class: "quiet" }, name), ...tokenDetails(readings[side], i, null)]);
  }, () => {}, (i) => onmove(`${"ab"[side]}${i}`)));
  const place = h("div", {},
    h("h2", {}, "Which model needs fewer bits"),
    h("ul", { class: "legend" }, [["p3", names[0]], ["q3", names[1]]].map(([kind, name]) =>
      h("li", { class: kind }, `${name} needs fewer`)), h("li", {}, "about the same")),
    together.place,
    h("h2", {}, "The cost for each model"), coloured(), legend(),
    h("div", { class: "methods" }, texts.map((text, side) => h("section", {}, h("h3", {}, names[side]), text.place))));
  return {
    place,
    async fill(signal) {
      const kinds = compared.spans.map((_, i) =>
        colourOf(compared.first_bits[i], compared.second_bits[i], compared.bytes[i]));
      await together.fill(compared.spans, kinds, signal);
      for (const [side, text] of texts.entries()) {
        const one = readings[side];
        await text.fill(one.tokens, one.bits.map((cost, i) => level(cost, one.bytes[i])), signal);
      }
      const place = { s: together, a: texts[0], b: texts[1] }[at[0]];
      if (place) place.go(Number(at.slice(1)), false);
    },
  };
}

/** The tokens of a span, separated. */
const tokensOf = (reading, ends, span) => reading.tokens.slice(span ? ends[span - 1] : 0, ends[span]).join(" · ");

function verdict(names, difference) {
  if (Math.abs(difference) < 0.005) return "Both need the same.";
  return `${names[difference < 0 ? 0 : 1]} needs ${signed(Math.abs(difference), 2).slice(1)} bits less.`;
}
