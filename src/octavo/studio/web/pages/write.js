// A model writes: three ways side by side, what could come next, and the tree of what may follow.

import { post } from "/web/api.js";
import { debounce, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { choices } from "/web/parts/next_tokens.js";
import { column, ending, joined, METHODS } from "/web/parts/generation_column.js";
import { tellCut } from "/web/parts/text_field.js";
import { missingRuns, noRuns, picker, runsFor } from "/web/parts/run_picker.js";
import { coloured, legend, quoted } from "/web/parts/tokens.js";
import { tree } from "/web/parts/continuation_tree.js";

const PROMPT = 8000; // characters, as the studio allows
const USUAL = { tokens: 100, seed: 1, temperature: 1, top_k: "", top_p: 1, min_p: 0, width: 4, penalty: 0 };
const LIMITS = { // least, most, step
  tokens: [1, 1000, 1], seed: [0, 2 ** 53 - 1, 1], temperature: [0.05, 3, 0.05], top_k: [1, 1000000, 1],
  top_p: [0.01, 1, 0.01], min_p: [0, 1, 0.01], width: [1, 16, 1], penalty: [0, 10, 0.1],
};
const CUTS = ["temperature", "top_k", "top_p", "min_p"];
const SLIDERS = ["temperature", "top_p", "min_p"];
const NAMES = { tokens: "Tokens to write", seed: "Seed", temperature: "Temperature", top_k: "Top k", top_p: "Top p",
  min_p: "Min p", width: "Beam width", penalty: "Length penalty" };

/** A setting from the address, where it is one. */
function given(params, name) {
  const text = params.get(name);
  const [least, most, step] = LIMITS[name];
  const value = Number(text);
  const fits = text && value >= least && value <= most && (step < 1 || Number.isInteger(value));
  return fits ? value : USUAL[name];
}

export async function show(main, params, signal) {
  const runs = await runsFor([""], signal);
  main.append(h("h1", {}, "Write"));
  if (!runs.length) {
    main.append(noRuns("language model", "octavo train gpt shakespeare --budget 3min --out runs/gpt"));
    return;
  }
  main.append(...await missingRuns([params.get("run")], signal));
  const settings = {
    run: runs.some((one) => one.run === params.get("run")) ? params.get("run") : runs[0].run,
    text: params.get("text") ?? "The ",
    ...Object.fromEntries(Object.keys(USUAL).map((name) => [name, given(params, name)])),
    go: params.get("go") ?? "", at: params.get("at") ?? "", tree: params.get("tree") ?? "",
  };
  const kept = () => remember("write", Object.fromEntries(Object.entries(settings).filter(([name, value]) =>
    value !== USUAL[name])));
  await page(main, runs, settings, kept, signal);
}

/** What the studio is asked, from the settings. */
const begun = (settings) => ({ run: settings.run, prompt: settings.text });
const drawing = (settings) => ({ temperature: settings.temperature, top_p: settings.top_p, min_p: settings.min_p,
  ...(settings.top_k ? { top_k: settings.top_k } : {}) });

async function page(main, runs, settings, kept, signal) {
  const [wrongNext, wrongTree] = [h("div", {}), h("div", {})];
  const prompt = tellCut(h("textarea", { maxlength: PROMPT, spellcheck: "false", value: settings.text }));
  const place = { path: [], told: h("p", { class: "quiet" }) }; // which the next tokens are shown of
  const panel = choices((end) => branch(end, wrongNext));
  const nextPlace = h("div", {}, place.told, wrongNext, panel.place);
  const askNext = latest(wrongNext, signal);
  const next = () => {
    replace(wrongNext, []);
    return askNext((mine) => panel.refresh({ ...place.begun, path: place.path, ...drawing(settings) }, mine));
  };

  const columns = Object.keys(METHODS).map((method) => column(method, (i, written) => choose(method, i, written)));
  const write = h("button", { class: "main", onclick: () => writeAll() }, "Write");
  const stop = h("button", { disabled: true, onclick: () => stopping.abort() }, "Stop");
  let stopping = new AbortController();
  let asked = begun(settings); // what the columns go on from; the prompt may have changed since

  async function writeAll() {
    stopping.abort();
    const mine = (stopping = new AbortController());
    const both = AbortSignal.any([mine.signal, signal]);
    settings.go = "1";
    place.chosen = ""; // what stands there may be another token now
    kept();
    stop.disabled = false;
    asked = begun(settings);
    const now = { ...asked, ...drawing(settings), max_tokens: settings.tokens, seed: settings.seed,
      width: settings.width, length_penalty: settings.penalty };
    await Promise.all(columns.map((one) => one.write(now, both, () => again(one))));
    if (mine === stopping) stop.disabled = true;
  }

  /** The place that the address names is chosen when its token has been written. */
  function again(one) {
    const [method, at] = settings.at.split(".");
    if (method !== one.method || place.chosen === settings.at || !(Number(at) < one.written.length)) return;
    one.text.go(Number(at), false);
    choose(method, Number(at), one.written);
  }

  function choose(method, i, written) {
    settings.at = place.chosen = `${method}.${i}`;
    [place.begun, place.path] = [asked, written.slice(0, i).map((one) => one.id)];
    const before = ending(asked.prompt + joined(written.slice(0, i)));
    replace(place.told, [`In place of ${quoted(written[i].token)}, after ${quoted(before)} `,
      h("button", { class: "small", onclick: toPrompt }, "Back to the prompt's end")]);
    kept();
    next();
  }

  function toPrompt() {
    settings.at = place.chosen = "";
    [place.begun, place.path] = [begun(settings), []];
    replace(place.told, settings.text ? `After ${quoted(ending(settings.text))}` : "At the very beginning");
    kept();
    next();
  }

  const askTree = latest(wrongTree, signal);
  const goOn = (path) => branch({ ...begun(settings), path }, wrongTree);
  const from = h("button", { onclick: () => goOn(grown.path) }, "Go on from here");
  const where = h("p", { role: "status" });
  const grown = tree((_, text) => replace(where, `${ending(settings.text, 20)}${text}`), goOn,
    (flipped) => { settings.tree = flipped; kept(); });
  const grow = (before) => askTree((mine) => grown.refresh(begun(settings), mine, before));

  /** The prompt becomes the text up to there, and is gone on with; what is wrong is told in `wrong`. */
  function branch(end, wrong) {
    replace(wrong, []);
    return latest(wrong, signal)(async (mine) => {
      const { text } = await post("/api/branch", end, mine);
      if (text.length > PROMPT) throw new Error(`a prompt may have ${PROMPT} characters: this has ${text.length}`);
      prompt.value = settings.text = text;
      changed();
      await writeAll();
    });
  }

  function changed(before = "") {
    replace(wrongTree, []);
    settings.tree = before;
    toPrompt();
    grow(before);
  }

  prompt.addEventListener("input", () => { settings.text = prompt.value; settings.go = ""; soon(); });
  const soon = debounce(() => changed(), 300);
  const writeSoon = debounce(() => settings.go && writeAll(), 500);
  const knob = (name) => knobFor(name, settings, () => {
    kept();
    if (CUTS.includes(name)) next();
    if (settings.go) writeSoon(); // what is shown is what the address gives
  });
  const run = picker(runs, settings.run, (chosen) => {
    settings.run = chosen;
    settings.go = "";
    changed();
  });
  main.append(
    h("div", { class: "bar" }, field("Run", run)),
    h("label", { class: "field wide" }, h("span", {}, "Prompt"), prompt),
    h("div", { class: "bar" }, ["tokens", "seed", "width", "penalty"].map(knob), write, stop),
    coloured(), legend(), h("div", { class: "methods" }, columns.map((one) => one.place)),
    h("h2", {}, "What comes next"),
    h("div", { class: "bar" }, CUTS.map(knob)), nextPlace,
    h("h2", {}, "What may follow"),
    h("p", { class: "quiet" }, "The likeliest continuations. The right arrow opens a token, Enter goes on from it."),
    h("div", { class: "bar" }, where, from), wrongTree, h("div", { class: "scroll" }, grown.place));
  const wanted = settings.at;
  changed(settings.tree);
  if (settings.go) {
    settings.at = wanted;
    await writeAll();
  } else for (const one of columns) replace(one.place.querySelector(".sum"), "Nothing written yet.");
}

/** A control of one setting; what it says is told beside it. */
function knobFor(name, settings, changed) {
  const [min, max, step] = LIMITS[name];
  const slider = SLIDERS.includes(name);
  const output = slider && h("b", {}, String(settings[name]));
  const input = h("input", { type: slider ? "range" : "number", min, max, step, value: settings[name], name,
    placeholder: name === "top_k" ? "all" : null, oninput: () => {
      if (input.value === "" && name !== "top_k") return;
      if (!input.checkValidity()) { input.reportValidity(); return; }
      settings[name] = input.value === "" ? "" : Number(input.value);
      if (output) replace(output, input.value);
      changed();
    } });
  return h("label", { class: "field knob" }, h("span", {}, NAMES[name], " ", output), input);
}
