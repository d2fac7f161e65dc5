// A text put into classes: the probabilities, what every word did, and when to abstain.

import { get, post } from "/web/api.js";
import { debounce, errorMessage, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { bars, sure } from "/web/parts/bars.js";
import { colouredWords, wordsLegend } from "/web/parts/word_contributions.js";
import { coverage } from "/web/parts/coverage.js";
import { limitPaste } from "/web/parts/text_field.js";
import { missingRuns, noRuns, picker, runsFor } from "/web/parts/run_picker.js";
import { columns, scrolled } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const TASK = "classify text", LONGEST = 10_000, LARGEST = 1 << 20, MOST_CLASSES = 30;

export async function show(main, params, signal) {
  main.append(h("h1", {}, "Classify"));
  const runs = await runsFor([TASK], signal);
  if (!runs.length) {
    main.append(noRuns("classifier", "octavo classify train linear sentence-polarity --out runs/polarity"));
    return;
  }
  main.append(...await missingRuns([params.get("run")], signal));
  const known = (name) => runs.some((one) => one.run === name);
  const view = {
    run: known(params.get("run")) ? params.get("run") : runs[0].run, text: params.get("text") ?? "",
    threshold: Math.min(1, Math.max(0, +(params.get("threshold") ?? 0) || 0)),
  };
  const keep = () => remember("classify", { ...view, threshold: view.threshold || "" });
  const answer = h("div", { "aria-live": "polite" }), words = h("div"), abstain = h("div"), figures = h("div");
  const asking = latest(answer, signal), explaining = latest(words, signal), telling = latest(abstain, signal);
  let found = null;

  const tell = () => found && replace(answer, answered(found, view.threshold));
  const ask = () => {
    keep();
    if (!view.text.trim()) {
      found = null;
      replace(answer, h("p", { class: "quiet" }, "Write something to see its class."));
      replace(words, []);
      return;
    }
    asking(async (still) => {
      found = (await post("/api/classify", { run: view.run, text: view.text }, still)).classes;
      tell();
    });
    explaining(async (still) => {
      replace(words, explained(await post("/api/classify/words", { run: view.run, text: view.text }, still)));
    });
  };
  const open = () => telling(async (still) => {
    const about = await get(`/api/classifier?run=${encodeURIComponent(view.run)}`, still);
    replace(figures, []);
    replace(abstain, thresholds(about, view, () => { keep(); tell(); }, figures, still));
    if (about.measured) replace(figures, measured(about.measured, "held out of its training"));
  });

  const text = limitPaste(h("textarea", {
    value: view.text, maxlength: LONGEST, spellcheck: "false", placeholder: "A text to classify",
    oninput: debounce(() => { view.text = text.value; ask(); }),
  }));
  main.append(
    h("div", { class: "bar" }, field("Classifier", picker(runs, view.run, (run) => {
      view.run = run;
      open();
      ask();
    }, "Classifier"))),
    h("label", { class: "field wide" }, h("span", {}, "Text"), text), answer, words,
    h("h2", {}, "When to abstain"), abstain, figures);
  open();
  ask();
}

/** The answer in words, and every class as a bar. */
function answered(classes, threshold) {
  const [[best, p]] = classes;
  const told = p >= threshold ? [h("b", {}, best), `, ${sure(p)} sure`]
    : [h("b", {}, "It abstains"), `: ${best} would be its answer, ${sure(p)} sure, below ${percent(threshold)}.`];
  return [h("p", { class: "verdict" }, told), bars(classes, "Probability of each class")];
}

function explained(told) {
  if (!told.words.length) return h("p", { class: "quiet" }, "There is no word in it.");
  return [h("h2", {}, "Word by word"), wordsLegend(told.answer), colouredWords(told.words, told.contributions),
    told.verdict && h("p", {}, told.verdict)];
}

/** The slider on the curve that was kept, or on that of examples that the user gives. */
function thresholds(about, view, changed, figures, signal) {
  const place = h("div"), problem = h("div");
  const draw = (curve, count) => replace(place, coverage({
    curve, count, what: "examples", threshold: view.threshold,
    onchange: (value) => { view.threshold = value; changed(); },
  }));
  draw(about.measured?.curve ?? [], about.measured?.examples ?? 0);
  const measuring = latest(problem, signal);
  const measure = (examples) => measuring(async (still) => {
    replace(problem, h("p", { class: "quiet", role: "status" }, "Measuring …"));
    const found = await post("/api/classify/measure", { run: about.run, examples }, still);
    replace(problem, []);
    draw(found.curve, found.examples);
    replace(figures, measured(found, "that you gave"));
  });
  return [
    about.calibrated && about.temperature && h("p", { class: "quiet" }, "Its confidence is calibrated: the logits are "
      + `divided by ${+about.temperature.toPrecision(3)}, which fitted a tenth held out of its training best.`),
    !about.measured?.curve.length && h("p", {}, "This run kept no curve of how accuracy grows as it answers less. Give "
      + "it labelled examples that it has not learnt from, and it is measured now."),
    place, examplesForm(measure, problem, !about.measured?.curve.length), problem,
  ];
}

function examplesForm(measure, problem, open) {
  const text = h("textarea", { placeholder: "good\tIt was a fine day.\nbad\tIt rained.", spellcheck: "false",
    maxlength: LARGEST });
  const file = h("input", { type: "file", accept: ".tsv,.txt,text/*", onchange: async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > LARGEST) replace(problem, errorMessage(new Error("a file of examples may have 1 MB; give fewer")));
    else text.value = await chosen.text();
  } });
  return h("details", { open, class: "fold" }, h("summary", {}, "Measure it on examples of your own"),
    field("Examples, a line each: label, tab, text", text), h("div", { class: "bar" }, field("or from a file", file),
      h("button", { class: "main", onclick: () => measure(text.value) }, "Measure")),
    h("p", { class: "quiet" }, "They are not kept."));
}

function measured(one, which) {
  const shown = (x) => (x == null ? "infinite" : x.toFixed(4));
  return [h("h2", {}, "How good it is"),
    h("p", {}, h("b", {}, `${(100 * one.accuracy).toFixed(1)} %`), ` of ${one.examples.toLocaleString("en")} examples `
      + `${which} are right (± ${(100 * one.standard_error).toFixed(1)}, standard error). Its confidence is `
      + `${(100 * one.ece).toFixed(1)} points away from its accuracy on average.`),
    h("p", { class: "quiet" }, `Macro F1 ${shown(one.macro_f1)}, log loss ${shown(one.log_loss)} nats, Brier score `
      + `${shown(one.brier)}.`),
    one.classes.length <= MOST_CLASSES && confusion(one)];
}

function confusion(one) {
  const titles = columns(["truth", ...one.classes.map((name) => `as ${name}`), "recall", "F1"], (i) => i > 0);
  const rows = one.classes.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name),
    one.confusion[i].map((count, j) => h("td", { class: i === j ? "r good" : "r" }, count.toLocaleString("en"))),
    [one.per_class[i].recall, one.per_class[i].f1].map((x) => h("td", { class: "r" }, x.toFixed(3)))));
  return scrolled("What it takes for what", "confusion", titles, rows,
    "What it takes for what: a row is a true class, a column an answer.");
}
