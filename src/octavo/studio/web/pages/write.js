// Generation: three decoding methods side by side, the next tokens, and the tree of continuations.

import { post } from "/web/api.js";
import { debounce, field, h, latest, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { continuationTree } from "/web/parts/continuation_tree.js";
import { ending, generationColumn, joined, METHODS } from "/web/parts/generation_column.js";
import { nextTokens } from "/web/parts/next_tokens.js";
import { limitPaste } from "/web/parts/text_field.js";
import { openPage, picker } from "/web/parts/run_picker.js";
import { coloured, legend, quoted } from "/web/parts/tokens.js";

const MAX_PROMPT_CHARACTERS = 8000; // as the studio allows
const DEFAULTS = { tokens: 100, seed: 1, temperature: 1, top_k: "", top_p: 1, min_p: 0, width: 4, penalty: 0 };
const LIMITS = { // min, max, step
  tokens: [1, 1000, 1], seed: [0, 2 ** 53 - 1, 1], temperature: [0.05, 3, 0.05], top_k: [1, 1000000, 1],
  top_p: [0.01, 1, 0.01], min_p: [0, 1, 0.01], width: [1, 16, 1], penalty: [0, 10, 0.1],
};
const SAMPLING = ["temperature", "top_k", "top_p", "min_p"];
const SLIDERS = ["temperature", "top_p", "min_p"];
const NAMES = { tokens: "Tokens", seed: "Seed", temperature: "Temperature", top_k: "Top k", top_p: "Top p",
  min_p: "Min p", width: "Beam width", penalty: "Length penalty" };

/** A setting from the address, where it is valid. */
function fromAddress(params, name) {
  const text = params.get(name);
  const [min, max, step] = LIMITS[name];
  const value = Number(text);
  const fits = text && value >= min && value <= max && (step < 1 || Number.isInteger(value));
  return fits ? value : DEFAULTS[name];
}

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "write", what: "language model",
    command: "octavo train gpt shakespeare --budget 3min --out runs/gpt" });
  if (!opened) return;
  const settings = {
    run: opened.chosen("run"), text: params.get("text") ?? "The ",
    ...Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, fromAddress(params, name)])),
    go: params.get("go") ?? "", at: params.get("at") ?? "", tree: params.get("tree") ?? "",
  };
  const save = () => remember("write", Object.fromEntries(Object.entries(settings).filter(([name, value]) =>
    value !== DEFAULTS[name])));
  await page(main, opened.runs, settings, save, signal);
}

/** Parts of the requests, from the settings. */
const positionOf = (settings) => ({ run: settings.run, prompt: settings.text });
const samplingOf = (settings) => ({ temperature: settings.temperature, top_p: settings.top_p, min_p: settings.min_p,
  ...(settings.top_k ? { top_k: settings.top_k } : {}) });

async function page(main, runs, settings, save, signal) {
  const [wrongNext, wrongTree] = [h("div", {}), h("div", {})];
  const prompt = limitPaste(h("textarea", { maxlength: MAX_PROMPT_CHARACTERS, spellcheck: "false", value: settings.text }));
  const place = { path: [], label: h("p", { class: "quiet" }) }; // whose next tokens are shown
  const panel = nextTokens((end) => branch(end, wrongNext));
  const nextPlace = h("div", {}, place.label, wrongNext, panel.place);
  const askNext = latest(wrongNext, signal);
  const next = () => {
    replace(wrongNext, []);
    return askNext((mine) => panel.refresh({ ...place.position, path: place.path, ...samplingOf(settings) }, mine));
  };

  const columns = Object.keys(METHODS).map((method) => generationColumn(method, (i, written) => choose(method, i, written)));
  const write = h("button", { class: "main", onclick: () => writeAll() }, "Write");
  const stop = h("button", { disabled: true, onclick: () => stopping.abort() }, "Stop");
  let stopping = new AbortController();
  let origin = positionOf(settings); // that the columns continue; the prompt may have changed since

  async function writeAll() {
    stopping.abort();
    const mine = (stopping = new AbortController());
    const both = AbortSignal.any([mine.signal, signal]);
    settings.go = "1";
    place.chosen = ""; // it may be another token now
    save();
    stop.disabled = false;
    origin = positionOf(settings);
    const now = { ...origin, ...samplingOf(settings), max_tokens: settings.tokens, seed: settings.seed,
      width: settings.width, length_penalty: settings.penalty };
    await Promise.all(columns.map((one) => one.write(now, both, () => restore(one))));
    if (mine === stopping) stop.disabled = true;
  }

  /** The position in the address is chosen when its token has been generated. */
  function restore(one) {
    const [method, at] = settings.at.split(".");
    if (method !== one.method || place.chosen === settings.at || !(Number(at) < one.written.length)) return;
    one.text.go(Number(at), false);
    choose(method, Number(at), one.written);
  }

  function choose(method, i, written) {
    settings.at = place.chosen = `${method}.${i}`;
    [place.position, place.path] = [origin, written.slice(0, i).map((one) => one.id)];
    const before = ending(origin.prompt + joined(written.slice(0, i)));
    replace(place.label, [`In place of ${quoted(written[i].token)}, after ${quoted(before)} `,
      h("button", { class: "small", onclick: toPrompt }, "Back to the end of the prompt")]);
    save();
    next();
  }

  function toPrompt() {
    settings.at = place.chosen = "";
    [place.position, place.path] = [positionOf(settings), []];
    replace(place.label, settings.text ? `After ${quoted(ending(settings.text))}` : "At the beginning");
    save();
    next();
  }

  const askTree = latest(wrongTree, signal);
  const continueFrom = (path) => branch({ ...positionOf(settings), path }, wrongTree);
  const from = h("button", { onclick: () => continueFrom(grown.path) }, "Continue from here");
  const where = h("p", { role: "status" });
  const grown = continuationTree((_, text) => replace(where, `${ending(settings.text, 20)}${text}`), continueFrom,
    (flipped) => { settings.tree = flipped; save(); });
  const loadTree = (before) => askTree((mine) => grown.refresh(positionOf(settings), mine, before));

  /** The prompt becomes the text up to there, and is continued; errors are shown in `wrong`. */
  function branch(end, wrong) {
    replace(wrong, []);
    return latest(wrong, signal)(async (mine) => {
      const { text } = await post("/api/branch", end, mine);
      if (text.length > MAX_PROMPT_CHARACTERS) throw new Error(`a prompt may have ${MAX_PROMPT_CHARACTERS} characters: this has ${text.length}`);
      prompt.value = settings.text = text;
      changed();
      await writeAll();
    });
  }

  function changed(before = "") {
    replace(wrongTree, []);
    settings.tree = before;
    toPrompt();
    loadTree(before);
  }

  prompt.addEventListener("input", () => { settings.text = prompt.value; settings.go = ""; soon(); });
  const soon = debounce(() => changed(), 300);
  const writeSoon = debounce(() => settings.go && writeAll(), 500);
  const knob = (name) => knobFor(name, settings, () => {
    save();
    if (SAMPLING.includes(name)) next();
    if (settings.go) writeSoon(); // the page shows what the address says
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
    h("h2", {}, "Next token"),
    h("div", { class: "bar" }, SAMPLING.map(knob)), nextPlace,
    h("h2", {}, "Continuations"),
    h("p", { class: "quiet" }, "The most probable continuations. The right arrow opens a token, Enter continues from it."),
    h("div", { class: "bar" }, where, from), wrongTree, h("div", { class: "scroll" }, grown.place));
  const wanted = settings.at;
  changed(settings.tree);
  if (settings.go) {
    settings.at = wanted;
    await writeAll();
  } else for (const one of columns) replace(one.place.querySelector(".sum"), "Nothing generated yet.");
}

/** A control of one setting, with its value beside it. */
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
