// A text as its words, each coloured by its contribution to the predicted class.

import { h } from "/web/dom.js";

const FULL_NATS = 1, STEPS = 4, MIN_NATS = 0.05; // at which the colour is deepest; its steps; what is coloured at all

/** The colour's class: for1 to for4 for the answer, against1 to against4 against it. */
export function side(contribution) {
  if (Math.abs(contribution) < MIN_NATS) return "";
  const step = Math.min(STEPS, Math.ceil((STEPS * Math.abs(contribution)) / FULL_NATS));
  return `${contribution > 0 ? "for" : "against"}${step}`;
}

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(2)}`;

/** The words in a line, their numbers below them. */
export function colouredWords(words, contributions) {
  return h("p", { class: "words" }, words.map((word, i) => [h("span", {}, h("mark", {
    class: side(contributions[i]), title: `${word}: ${signed(contributions[i])}`,
  }, word), side(contributions[i]) && h("sub", {}, signed(contributions[i]))), " "]));
}

/** What the colours mean. */
export function wordsLegend(answer) {
  const mark = (kind, text) => h("mark", { class: kind }, text);
  return h("p", { class: "words" }, mark("for1", "a little"), " ", mark("for4", "much"), ` for ${answer}; `,
    mark("against1", "a little"), " ", mark("against4", "much"), " against it. The number is how much the log-odds of the answer, "
    + "ln p / (1 − p), fall when the word is left out.");
}
