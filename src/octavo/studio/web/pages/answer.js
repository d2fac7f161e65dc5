// Questions answered with a confidence: by the model where it is confident enough, else from stored answers.

import { get, post } from "/web/api.js";
import { debounce, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { bars, confidence } from "/web/parts/bars.js";
import { colouredWords, wordsLegend } from "/web/parts/word_contributions.js";
import { coverage } from "/web/parts/coverage.js";
import { openPage, picker } from "/web/parts/run_picker.js";
import { columns, plainTable, scrolled } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const DEFAULT_THRESHOLD = 0.5; // of octavo answer, too

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "answer", what: "run that answers questions",
    command: "octavo train facts birthplaces --out runs/facts" });
  if (!opened) return;
  const given = params.get("threshold");
  const view = {
    run: opened.chosen("run"),
    question: params.get("question") ?? "",
    threshold: given !== null && given >= 0 && given <= 1 ? +given : DEFAULT_THRESHOLD,
  };
  const reply = h("div", { "aria-live": "polite" }), abstain = h("div"), scores = h("div");
  const answering = latest(reply, signal), loading = latest(abstain, signal);
  const save = () => remember("answer", { ...view, threshold: view.threshold === DEFAULT_THRESHOLD ? "" : view.threshold });

  const ask = (userAnswer = "") => {
    save();
    if (!view.question.trim()) {
      replace(reply, []);
      return;
    }
    answering(async (still) => {
      const answer = await post("/api/answer", { ...view, user_answer: userAnswer }, still);
      replace(reply, showReply(answer, view.threshold, ask));
    });
  };
  const askAgain = debounce(ask, 150);
  const open = () => loading(async (still) => {
    const about = await get(`/api/oracle?run=${encodeURIComponent(view.run)}`, still);
    line.placeholder = `${about.before}Ada Lovelace${about.after}`;
    const found = about.measured;
    const slider = (threshold) => coverage({
      curve: found?.curve ?? [], count: found?.questions ?? 0, what: "new questions", threshold,
      others: found && Object.keys(found.groups).length > 1 ? curves(found.groups) : {},
      onchange: (value) => { view.threshold = value; save(); askAgain(); },
    });
    const place = h("div", {}, slider(view.threshold));
    const use = (threshold) => { view.threshold = threshold; replace(place, slider(threshold)); ask(); };
    replace(abstain, [place, found && levels(found.at_accuracy, use)]);
    replace(scores, found ? measured(found) : h("p", { class: "quiet" }, "This run was not evaluated."));
  });

  const line = h("input", { value: view.question, maxlength: 400, autocomplete: "off" });
  const form = h("form", { class: "bar", onsubmit: (event) => {
    event.preventDefault();
    view.question = line.value;
    ask();
  } }, h("label", { class: "field grow" }, h("span", {}, "A question, or a name"), line),
  h("button", { class: "main" }, "Ask"));
  main.append(h("div", { class: "bar" }, field("Run", picker(opened.runs, view.run, (run) => {
    view.run = run;
    open();
    ask();
  }))), form, reply, h("h2", {}, "When to abstain"), abstain, scores);
  open();
  ask();
}

const curves = (groups) => Object.fromEntries(Object.entries(groups).map(([name, one]) => [name, one.curve]));

/** The answer, its source, and the model's other candidates. */
function showReply(found, threshold, ask) {
  const guess = found.guess ? `“${found.guess}”` : "nothing";
  const model = `the model's guess is ${guess}, with a confidence of ${confidence(found.confidence)}`;
  const verdict = {
    model: [h("b", {}, found.answer), `, confidence ${confidence(found.confidence)}`],
    facts: [h("b", {}, found.answer), `, from the stored answers; ${model}`],
    user: [h("b", {}, found.answer), `, from you${found.stored ? ", stored for the next time" : ""}; ${model}`],
    nobody: [h("b", {}, "No answer."), found.guess ? ` The model abstains: its guess is ${guess}, with a confidence of `
      + `${percent(found.confidence)}, below ${percent(threshold)}.` : " The model has no guess."],
  }[found.source];
  const every = [[found.guess || "(nothing)", found.confidence], ...found.others].sort((a, b) => b[1] - a[1]);
  return [
    h("p", { class: "verdict" }, verdict), found.source === "nobody" && found.can_store && teach(ask),
    h("h2", {}, "Contribution of each word"), found.words.length > 0 && wordsLegend(guess),
    found.words.length > 0 ? colouredWords(...unzipped(found.words)) : h("p", { class: "quiet" }, found.asked),
    h("h2", {}, "All candidates"), bars(every, "Probability of each whole answer"),
  ];
}

const unzipped = (pairs) => [pairs.map(([word]) => word), pairs.map(([, did]) => did)];

/** Where there is no answer, the user may give one. */
function teach(ask) {
  const line = h("input", { maxlength: 200, autocomplete: "off" });
  return h("form", { class: "bar", onsubmit: (event) => {
    event.preventDefault();
    if (line.value.trim()) ask(line.value.trim());
  } }, field("Do you know?", line, "Stored in known-facts, in the runs' folder; octavo answer --learn trains the model on it."),
  h("button", {}, "Store this answer"));
}

/** The thresholds of some accuracies, each with a button. */
function levels(rows, use) {
  if (!rows.length) return h("p", { class: "quiet" }, "At no threshold are half of its answers correct.");
  return plainTable("Thresholds", ["wanted accuracy", "threshold", "coverage", "accuracy", ""], rows.map((one) => [
    ...[one.wanted, one.threshold, one.coverage, one.accuracy].map(percent),
    h("button", { onclick: () => use(one.threshold), "aria-label": `Use ${percent(one.threshold)}` }, "Use")]), () => true);
}

function measured(one) {
  return [h("h2", {}, "Scores"),
    h("p", {}, h("b", {}, `${(100 * one.exact_match).toFixed(1)} %`), ` of ${one.questions.toLocaleString("en")} new `
      + `questions are answered exactly (± ${(100 * one.standard_error).toFixed(1)}, standard error). Always `
      + `“${one.commonest.answer}”, the most frequent answer in training, would be correct for `
      + `${(100 * one.commonest.exact_match).toFixed(1)} %.`),
    scrolled("By where a name was seen", null, columns(["name", "questions", "exact match", "confidence", "calibration error"], (i) => i > 0),
      Object.entries(one.groups).map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", { class: "r" }, of.questions.toLocaleString("en")),
        [of.exact_match, of.confidence, of.ece].map((x) => h("td", { class: "r" }, `${(100 * x).toFixed(1)} %`))))),
    h("p", { class: "quiet" }, "Calibration error: the mean distance between confidence and accuracy.")];
}
