// Text classification: the probabilities, the contribution of every word, and when to abstain.

import { get, post } from "/web/api.js";
import { debounce, errorMessage, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { bars, confidence } from "/web/parts/bars.js";
import { colouredWords, wordsLegend } from "/web/parts/word_contributions.js";
import { coverage } from "/web/parts/coverage.js";
import { limitPaste } from "/web/parts/text_field.js";
import { openPage, picker } from "/web/parts/run_picker.js";
import { columns, scrolled } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const MAX_TEXT_CHARACTERS = 10_000, MAX_FILE_BYTES = 1 << 20, MAX_CLASSES = 30;

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "classify", what: "classifier",
    command: "octavo classify train linear sentence-polarity --out runs/polarity" });
  if (!opened) return;
  const view = {
    run: opened.chosen("run"), text: params.get("text") ?? "",
    threshold: Math.min(1, Math.max(0, +(params.get("threshold") ?? 0) || 0)),
  };
  const save = () => remember("classify", { ...view, threshold: view.threshold || "" });
  const answer = h("div", { "aria-live": "polite" }), words = h("div"), abstain = h("div"), scores = h("div");
  const classifying = latest(answer, signal), explaining = latest(words, signal), loading = latest(abstain, signal);
  let found = null;

  const showAnswer = () => found && replace(answer, verdict(found, view.threshold));
  const classify = () => {
    save();
    if (!view.text.trim()) {
      found = null;
      replace(answer, h("p", { class: "quiet" }, "Type a text to see its class."));
      replace(words, []);
      return;
    }
    classifying(async (still) => {
      found = (await post("/api/classify", { run: view.run, text: view.text }, still)).classes;
      showAnswer();
    });
    explaining(async (still) => {
      replace(words, explained(await post("/api/classify/words", { run: view.run, text: view.text }, still)));
    });
  };
  const open = () => loading(async (still) => {
    const about = await get(`/api/classifier?run=${encodeURIComponent(view.run)}`, still);
    replace(scores, []);
    replace(abstain, thresholds(about, view, () => { save(); showAnswer(); }, scores, still));
    if (about.measured) replace(scores, measured(about.measured, "held out of training"));
  });

  const text = limitPaste(h("textarea", {
    value: view.text, maxlength: MAX_TEXT_CHARACTERS, spellcheck: "false", placeholder: "A text to classify",
    oninput: debounce(() => { view.text = text.value; classify(); }),
  }));
  main.append(
    h("div", { class: "bar" }, field("Classifier", picker(opened.runs, view.run, (run) => {
      view.run = run;
      open();
      classify();
    }, "Classifier"))),
    h("label", { class: "field wide" }, h("span", {}, "Text"), text), answer, words,
    h("h2", {}, "When to abstain"), abstain, scores);
  open();
  classify();
}

/** The predicted class in words, and every class as a bar. */
function verdict(classes, threshold) {
  const [[best, p]] = classes;
  const words = p >= threshold ? [h("b", {}, best), `, confidence ${confidence(p)}`]
    : [h("b", {}, "It abstains"), `: ${best} has a confidence of ${confidence(p)}, below ${percent(threshold)}.`];
  return [h("p", { class: "verdict" }, words), bars(classes, "Probability of each class")];
}

function explained(found) {
  if (!found.words.length) return h("p", { class: "quiet" }, "There is no word in it.");
  return [h("h2", {}, "Contribution of each word"), wordsLegend(found.answer), colouredWords(found.words, found.contributions),
    found.verdict && h("p", {}, found.verdict)];
}

/** The slider on the run's curve, or on the curve of examples that the user gives. */
function thresholds(about, view, changed, scores, signal) {
  const place = h("div"), problem = h("div");
  const draw = (curve, count) => replace(place, coverage({
    curve, count, what: "examples", threshold: view.threshold,
    onchange: (value) => { view.threshold = value; changed(); },
  }));
  draw(about.measured?.curve ?? [], about.measured?.examples ?? 0);
  const measuring = latest(problem, signal);
  const measure = (examples) => measuring(async (still) => {
    replace(problem, h("p", { class: "quiet", role: "status" }, "Evaluating …"));
    const found = await post("/api/classify/measure", { run: about.run, examples }, still);
    replace(problem, []);
    draw(found.curve, found.examples);
    replace(scores, measured(found, "that you gave"));
  });
  return [
    about.calibrated && about.temperature && h("p", { class: "quiet" }, "Its confidence is calibrated: the logits are "
      + `divided by ${+about.temperature.toPrecision(3)}, which fitted a tenth held out of its training best.`),
    !about.measured?.curve.length && h("p", {}, "This run has no curve of accuracy over coverage. Give it labelled "
      + "examples that it was not trained on, and it is evaluated now."),
    place, examplesForm(measure, problem, !about.measured?.curve.length), problem,
  ];
}

function examplesForm(measure, problem, open) {
  const text = h("textarea", { placeholder: "good\tIt was a fine day.\nbad\tIt rained.", spellcheck: "false",
    maxlength: MAX_FILE_BYTES });
  const file = h("input", { type: "file", accept: ".tsv,.txt,text/*", onchange: async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > MAX_FILE_BYTES) replace(problem, errorMessage(new Error("a file of examples may have 1 MB; give fewer")));
    else text.value = await chosen.text();
  } });
  return h("details", { open, class: "fold" }, h("summary", {}, "Evaluate it on your own examples"),
    field("Examples, a line each: label, tab, text", text), h("div", { class: "bar" }, field("or from a file", file),
      h("button", { class: "main", onclick: () => measure(text.value) }, "Evaluate")),
    h("p", { class: "quiet" }, "They are not stored."));
}

function measured(one, which) {
  const shown = (x) => (x == null ? "infinite" : x.toFixed(4));
  return [h("h2", {}, "Scores"),
    h("p", {}, h("b", {}, `${(100 * one.accuracy).toFixed(1)} %`), ` of ${one.examples.toLocaleString("en")} examples `
      + `${which} are classified correctly (± ${(100 * one.standard_error).toFixed(1)}, standard error). The calibration `
      + `error is ${(100 * one.ece).toFixed(1)} points.`),
    h("p", { class: "quiet" }, `Macro F1 ${shown(one.macro_f1)}, log loss ${shown(one.log_loss)} nats, Brier score `
      + `${shown(one.brier)}.`),
    one.classes.length <= MAX_CLASSES && confusion(one)];
}

function confusion(one) {
  const titles = columns(["true class", ...one.classes.map((name) => `as ${name}`), "recall", "F1"], (i) => i > 0);
  const rows = one.classes.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name),
    one.confusion[i].map((count, j) => h("td", { class: i === j ? "r good" : "r" }, count.toLocaleString("en"))),
    [one.per_class[i].recall, one.per_class[i].f1].map((x) => h("td", { class: "r" }, x.toFixed(3)))));
  return scrolled("Confusion matrix", "confusion", titles, rows,
    "Confusion matrix: a row is a true class, a column a predicted class.");
}
