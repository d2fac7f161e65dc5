// Questions answered with a confidence: the model where it is sure enough, else what was kept, else nobody.

import { get, post } from "/web/api.js";
import { debounce, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { bars, sure } from "/web/parts/bars.js";
import { colouredWords, wordsLegend } from "/web/parts/word_contributions.js";
import { coverage } from "/web/parts/coverage.js";
import { missingRuns, noRuns, picker } from "/web/parts/run_picker.js";
import { columns, scrolled } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const USUAL = 0.5; // the threshold of octavo answer, too

export async function show(main, params, signal) {
  main.append(h("h1", {}, "Answer"));
  const runs = await get("/api/oracles", signal);
  if (!runs.length) {
    main.append(noRuns("run that answers questions", "octavo train facts birthplaces --out runs/facts"));
    return;
  }
  main.append(...await missingRuns([params.get("run")], signal));
  const given = params.get("threshold");
  const view = {
    run: runs.some((one) => one.run === params.get("run")) ? params.get("run") : runs[0].run,
    question: params.get("question") ?? "",
    threshold: given !== null && given >= 0 && given <= 1 ? +given : USUAL,
  };
  const reply = h("div", { "aria-live": "polite" }), abstain = h("div"), figures = h("div");
  const asking = latest(reply, signal), telling = latest(abstain, signal);
  const keep = () => remember("answer", { ...view, threshold: view.threshold === USUAL ? "" : view.threshold });

  const ask = (told = "") => {
    keep();
    if (!view.question.trim()) {
      replace(reply, []);
      return;
    }
    asking(async (still) => {
      const found = await post("/api/answer", { ...view, told }, still);
      replace(reply, replied(found, view.threshold, ask));
    });
  };
  const askAgain = debounce(ask, 150);
  const open = () => telling(async (still) => {
    const about = await get(`/api/oracle?run=${encodeURIComponent(view.run)}`, still);
    line.placeholder = `${about.before}Ada Lovelace${about.after}`;
    const found = about.measured;
    const slider = (threshold) => coverage({
      curve: found?.curve ?? [], count: found?.questions ?? 0, what: "new questions", threshold,
      others: found && Object.keys(found.groups).length > 1 ? curves(found.groups) : {},
      onchange: (value) => { view.threshold = value; keep(); askAgain(); },
    });
    const place = h("div", {}, slider(view.threshold));
    const use = (threshold) => { view.threshold = threshold; replace(place, slider(threshold)); ask(); };
    replace(abstain, [place, found && levels(found.at_accuracy, use)]);
    replace(figures, found ? measured(found) : h("p", { class: "quiet" }, "This run was not measured."));
  });

  const line = h("input", { value: view.question, maxlength: 400, autocomplete: "off" });
  const form = h("form", { class: "bar", onsubmit: (event) => {
    event.preventDefault();
    view.question = line.value;
    ask();
  } }, h("label", { class: "field grow" }, h("span", {}, "A question, or a name"), line),
  h("button", { class: "main" }, "Ask"));
  main.append(h("div", { class: "bar" }, field("Run", picker(
    runs.map((one) => ({ run: one.run, model: one.corpus, figure: null })), view.run, (run) => {
      view.run = run;
      open();
      ask();
    }))), form, reply, h("h2", {}, "When to abstain"), abstain, figures);
  open();
  ask();
}

const curves = (groups) => Object.fromEntries(Object.entries(groups).map(([name, one]) => [name, one.curve]));

/** The answer, who gave it, and what else the model thought of. */
function replied(found, threshold, ask) {
  const guess = found.guess ? `“${found.guess}”` : "nothing";
  const model = `the model would have said ${guess}, ${sure(found.confidence)} sure`;
  const told = {
    model: [h("b", {}, found.answer), `, ${sure(found.confidence)} sure`],
    facts: [h("b", {}, found.answer), `, from what was kept; ${model}`],
    user: [h("b", {}, found.answer), `, from you${found.stored ? ", kept for the next time" : ""}; ${model}`],
    nobody: [h("b", {}, "I do not know."), found.guess ? ` The model abstains: it would say ${guess}, but only `
      + `${percent(found.confidence)} sure, below ${percent(threshold)}.` : " The model has nothing to say."],
  }[found.source];
  const every = [[found.guess || "(nothing)", found.confidence], ...found.others].sort((a, b) => b[1] - a[1]);
  return [
    h("p", { class: "verdict" }, told), found.source === "nobody" && found.can_keep && teach(ask),
    h("h2", {}, "Word by word"), found.words.length > 0 && wordsLegend(guess),
    found.words.length > 0 ? colouredWords(...unzipped(found.words)) : h("p", { class: "quiet" }, found.asked),
    h("h2", {}, "What else it thought of"), bars(every, "Probability of each whole answer"),
  ];
}

const unzipped = (pairs) => [pairs.map(([word]) => word), pairs.map(([, did]) => did)];

/** Where nobody knows, the user may say it. */
function teach(ask) {
  const line = h("input", { maxlength: 200, autocomplete: "off" });
  return h("form", { class: "bar", onsubmit: (event) => {
    event.preventDefault();
    if (line.value.trim()) ask(line.value.trim());
  } }, field("Do you know?", line, "Kept in known-facts, in the runs' folder; octavo answer --learn teaches it."),
  h("button", {}, "Keep this answer"));
}

/** Thresholds for answers that are right so often, each to be chosen. */
function levels(rows, use) {
  if (!rows.length) return h("p", { class: "quiet" }, "No threshold makes half of its answers right.");
  const titles = columns(["wanted", "threshold", "answered", "right", ""], () => true);
  return scrolled("Thresholds", null, titles, rows.map((one) => h("tr", {},
    [one.wanted, one.threshold, one.coverage, one.accuracy].map((x) => h("td", { class: "r" }, percent(x))),
    h("td", {}, h("button", { onclick: () => use(one.threshold), "aria-label": `Use ${percent(one.threshold)}` },
      "Use")))));
}

function measured(one) {
  return [h("h2", {}, "How good it is"),
    h("p", {}, h("b", {}, `${(100 * one.exact_match).toFixed(1)} %`), ` of ${one.questions.toLocaleString("en")} new `
      + `questions are answered exactly (± ${(100 * one.standard_error).toFixed(1)}, standard error). Always `
      + `“${one.commonest.answer}”, the commonest answer learnt, would be right for `
      + `${(100 * one.commonest.exact_match).toFixed(1)} %.`),
    scrolled("By where a name was seen", null, columns(["name", "asked", "right", "sure", "off by"], (i) => i > 0),
      Object.entries(one.groups).map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", { class: "r" }, of.questions.toLocaleString("en")),
        [of.exact_match, of.confidence, of.ece].map((x) => h("td", { class: "r" }, `${(100 * x).toFixed(1)} %`))))),
    h("p", { class: "quiet" }, "Sure: the mean confidence. Off by: how far confidence is from accuracy, on average.")];
}
