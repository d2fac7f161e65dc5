// Tagging: the words in the colours of their tags, the alternatives of each, and two ways to choose a sequence.

import { post } from "/web/api.js";
import { debounce, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { bars, confidence } from "/web/parts/bars.js";
import { tint } from "/web/parts/colours.js";
import { openPage, picker } from "/web/parts/run_picker.js";
import { columns, scrolled } from "/web/parts/table.js";
import { limitPaste } from "/web/parts/text_field.js";
import { tokenRow } from "/web/parts/token_picker.js";

const MAX_TEXT_CHARACTERS = 10_000;

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "tag", what: "tagger",
    command: "octavo tag train tagger porttinari --out runs/tagger" });
  if (!opened) return;
  const place = (name) => Math.max(0, Math.trunc(Number(params.get(name))) || 0);
  const view = { run: opened.chosen("run"), text: params.get("text") ?? "", line: place("line"), word: place("word") };
  const save = () => remember("tag", { ...view, line: view.line || "", word: view.word || "" });
  const answer = h("div");
  const tagging = latest(answer, signal);
  const tag = () => {
    save();
    if (!view.text.trim()) {
      replace(answer, h("p", { class: "quiet" }, "Type a sentence to see its tags."));
      return;
    }
    if (!answer.querySelector(".tagged")) replace(answer, h("p", { class: "quiet", role: "status" }, "Tagging …"));
    tagging(async (still) => {
      const found = await post("/api/tag", { run: view.run, text: view.text }, still);
      replace(answer, tagged(found, view, save));
    });
  };
  const text = limitPaste(h("textarea", {
    value: view.text, maxlength: MAX_TEXT_CHARACTERS, spellcheck: "false", placeholder: "The dog sees a cat .",
    oninput: debounce(() => { Object.assign(view, { text: text.value, line: 0, word: 0 }); tag(); }),
  }));
  main.append(
    h("div", { class: "bar" }, field("Tagger", picker(opened.runs, view.run, (run) => { view.run = run; tag(); }, "Tagger"))),
    h("label", { class: "field wide" }, h("span", {}, "Text"), text,
      h("small", {}, "A sentence a line. Words are separated by spaces, punctuation too, as in the training data.")),
    answer);
  tag();
}

/** Every sentence as words to choose from, and below them what is known of the chosen one. */
function tagged(found, view, save) {
  const { sentences, tags } = found;
  const used = tags.filter((name) => sentences.some(({ words }) => words.some((one) => one.tag === name)));
  const detail = h("section", { "aria-live": "polite" });
  view.line = Math.min(view.line, sentences.length - 1);
  view.word = Math.min(view.word, sentences[view.line].words.length - 1);
  const rows = sentences.map(({ words }, line) => tokenRow(
    words.map((one) => [h("span", {}, one.word), h("small", {}, one.tag)]), line === view.line ? view.word : 0,
    (n) => ({ class: differs(words[n]) ? "differs" : null, style: tint(used.indexOf(words[n].tag)), title: describe(words[n]) }),
    (n) => choose(line, n), `Sentence ${line + 1}`));
  rows.forEach((row) => row.classList.add("tagged"));
  const choose = (line, word) => {
    Object.assign(view, { line, word });
    save();
    rows.forEach((row, n) => n !== line && row.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false"));
    replace(detail, about(sentences[line], word, found.crf));
  };
  choose(view.line, view.word);
  const some = sentences.some(({ words }) => words.some(differs));
  return [
    h("ul", { class: "legend", "aria-label": "Tags" }, used.map((name, k) => h("li", { style: tint(k) }, name))), rows,
    some && h("p", { class: "quiet" }, "Dashed: the best sequence gives the word another tag than the one most likely for it."),
    detail,
  ];
}

const differs = ({ tag, likely }) => tag !== likely;
const describe = (one) => `${one.word}: ${one.tag}, ${confidence(one.p)}`
  + (differs(one) ? `; by itself most likely ${one.likely}` : "");

/** The chosen word's tags, and its sentence tagged in two ways. */
function about(sentence, n, crf) {
  const one = sentence.words[n];
  return [
    h("h2", {}, `“${one.word}”: ${one.tag}`),
    !one.known && h("p", { class: "quiet" }, "Training has not seen this word often enough: its ends and its shape decide."),
    bars(one.alternatives, `Probability of each tag of ${one.word}`),
    h("h2", {}, "Its sentence in two ways"), ways(sentence, crf),
  ];
}

function ways({ words, p_best: best, p_likely: likely }, crf) {
  if (!crf) return h("p", {}, `This tagger has no chain over the tags: each word is tagged by itself, so both ways agree. `
    + `All tags together have a probability of ${confidence(best)}.`);
  const different = words.filter(differs);
  const verdict = different.length === 0
    ? `The best sequence (Viterbi) is also the most likely tag of each word. It has a probability of ${confidence(best)}.`
    : `The best sequence (Viterbi) has a probability of ${confidence(best)}; the most likely tag of each word gives one of `
      + `${confidence(likely)}. They differ in ${different.length} of ${words.length} words.`;
  const p = (one) => one.alternatives.find(([name]) => name === one.likely)[1];
  return [h("p", {}, verdict), different.length > 0 && scrolled("Where they differ", null,
    columns(["word", "best sequence", "probability", "most likely", "probability"], (i) => i === 2 || i === 4),
    different.map((one) => h("tr", {}, h("td", { class: "mono" }, one.word), h("td", {}, one.tag),
      h("td", { class: "r" }, confidence(one.p)), h("td", {}, one.likely), h("td", { class: "r" }, confidence(p(one))))))];
}
