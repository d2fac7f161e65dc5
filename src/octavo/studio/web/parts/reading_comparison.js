// Two readings of the same bytes: where one model paid less than the other, and both texts with their own tokens.

import { h, replace } from "/web/dom.js";
import { about, bits, signed } from "/web/parts/reading_details.js";
import { coloured, legend, level, quoted, walk } from "/web/parts/tokens.js";

const STEPS = [0.25, 1, 2.5]; // bits per byte apart at which the colour changes

/** The colour's class of a stretch: p where the first model paid less, q where the second did. */
export function apart(first, second, bytes) {
  if (first == null && second == null) return "";
  if (first == null || second == null) return first == null ? "q3" : "p3";
  const each = (first - second) / Math.max(1, bytes);
  const step = STEPS.filter((one) => Math.abs(each) >= one).length;
  return step ? `${each < 0 ? "p" : "q"}${step}` : "";
}

/** Of each token, the stretch that it is in. */
function spanOf(ends) {
  const of = [];
  ends.forEach((end, span) => { while (of.length < end) of.push(span); });
  return of;
}

/** `at` is the place to begin at, "s5": stretch 5, or token 5 of the one text, "a5", or of the other, "b5"; onmove(at)
 * is called where one has gone to another. */
export function difference(names, told, card, at, onmove) {
  const readings = [told.first, told.second];
  const ends = [told.first_ends, told.second_ends];
  const of = ends.map(spanOf);
  let marked = [];

  function mark(span) {
    marked.forEach((one) => one.classList.remove("same"));
    marked = [together.spans[span], ...texts.flatMap((text, side) =>
      text.spans.slice(span ? ends[side][span - 1] : 0, ends[side][span]))].filter(Boolean);
    marked.forEach((one) => one.classList.add("same"));
  }

  const together = walk("The text, coloured by which model paid less: the arrow keys move", (span) => {
    mark(span);
    const [a, b] = [told.first_bits[span], told.second_bits[span]];
    replace(card, [h("p", {}, h("b", {}, quoted(told.spans[span]))),
      h("table", {}, h("tbody", {}, names.map((name, side) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", {}, pieces(readings[side], ends[side], span)),
        h("td", { class: "r" }, `${bits([a, b][side])} bits`))))),
      a != null && b != null && h("p", {}, verdict(names, a - b))]);
  }, () => {}, (span) => onmove(`s${span}`));
  const texts = names.map((name, side) => walk(`The text as ${name} reads it: the arrow keys move`, (i) => {
    mark(of[side][i]);
    replace(card, [h("p", { class: "quiet" }, name), ...about(readings[side], i, null)]);
  }, () => {}, (i) => onmove(`${"ab"[side]}${i}`)));
  const place = h("div", {},
    h("h2", {}, "Who paid less"),
    h("ul", { class: "legend" }, [["p3", names[0]], ["q3", names[1]]].map(([kind, name]) =>
      h("li", { class: kind }, `${name} paid less`)), h("li", {}, "about the same")),
    together.place,
    h("h2", {}, "What each paid"), coloured(), legend(),
    h("div", { class: "methods" }, texts.map((text, side) => h("section", {}, h("h3", {}, names[side]), text.place))));
  return {
    place,
    async fill(signal) {
      const kinds = told.spans.map((_, i) => apart(told.first_bits[i], told.second_bits[i], told.bytes[i]));
      await together.fill(told.spans, kinds, signal);
      for (const [side, text] of texts.entries()) {
        const one = readings[side];
        await text.fill(one.tokens, one.bits.map((paid, i) => level(paid, one.bytes[i])), signal);
      }
      const place = { s: together, a: texts[0], b: texts[1] }[at[0]];
      if (place) place.go(Number(at.slice(1)), false);
    },
  };
}

/** The tokens of a stretch, apart. */
const pieces = (told, ends, span) => told.tokens.slice(span ? ends[span - 1] : 0, ends[span]).join(" · ");

function verdict(names, more) {
  if (Math.abs(more) < 0.005) return "Both paid the same.";
  return `${names[more < 0 ? 0 : 1]} paid ${signed(Math.abs(more), 2).slice(1)} bits less.`;
}
