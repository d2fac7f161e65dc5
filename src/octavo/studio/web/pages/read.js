// A text read by one model or two: each token coloured by its cost in bits, with the most probable alternatives.

import { post } from "/web/api.js";
import { choice, debounce, errorMessage, field, h, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { adaptationView, tokenCosts } from "/web/parts/adaptation.js";
import { readingComparison } from "/web/parts/reading_comparison.js";
import { limitPaste } from "/web/parts/text_field.js";
import { cancellable } from "/web/parts/cancellable.js";
import { openPage, picker, runLabel } from "/web/parts/run_picker.js";
import { markAttention, tokenDetails, totals } from "/web/parts/reading_details.js";
import { coloured, legend, level, walk } from "/web/parts/tokens.js";

const MAX_TEXT_CHARACTERS = 20000; // as the studio allows
const EXAMPLES = {
  "A plain sentence": "The train was late again, so we walked home along the river in the rain.",
  "The same sentence twice": "My neighbour keeps bees on the roof. My neighbour keeps bees on the roof.",
  "A scene from a play": "KING:\nWho comes so late? Speak, or be gone.\n\nMESSENGER:\nMy lord, the war is won.\n",
  "Numbers and code": "for i in range(10):\n    total = total + i * 3.14\nprint(total)  # 141.3\n",
  "Odd words": "A zqxj brought 77 umbrellas — naïve, perhaps — to the café at 25:61.",
};

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "read", what: "language model",
    command: "octavo train ngram shakespeare --order 7 --tokenizer char --out runs/kn7", names: ["run", "other"] });
  if (!opened) return;
  const { runs, chosen } = opened;
  const settings = {
    run: chosen("run"), other: chosen("other", ""),
    text: params.get("text") ?? EXAMPLES["A plain sentence"], layers: params.get("layers") === "all" ? "all" : "",
    adaptive: params.get("adaptive") ? "1" : "", at: params.get("at") ?? "",
  };
  const text = limitPaste(h("textarea", {
    maxlength: MAX_TEXT_CHARACTERS, spellcheck: "false", "aria-label": "Text", value: settings.text,
  }));
  const out = h("div", {});
  const task = cancellable(out, signal);
  const refresh = () => {
    remember("read", settings);
    return task.start((mine) =>
      (settings.other ? compare : readOne)(out, settings, mine, (reading) => {
        heads.hidden = !reading.has_attention || Boolean(settings.other);
        learning.hidden = !reading.can_adapt;
      }));
  };
  const soon = debounce(refresh, 300);
  const set = (name, value) => Object.assign(settings, { at: name === "layers" ? settings.at : "", [name]: value });
  text.addEventListener("input", () => { set("text", text.value); soon(); });
  const change = (name) => (value) => { set(name, value); refresh(); };
  const choose = (run) => {
    settings.adaptive = ""; // another model may not be able to
    learns.checked = false;
    learning.hidden = true;
    change("run")(run);
  };
  const other = choice([["", "nothing"], ...runs.map((one) => [one.run, runLabel(one)])], settings.other, change("other"));
  const examples = choice([["", "choose …"], ...Object.keys(EXAMPLES).map((name) => [name])], "", (name) => {
    if (!name) return;
    text.value = EXAMPLES[name];
    examples.value = "";
    change("text")(text.value);
  });
  const layers = choice([["", "the last layer"], ["all", "all layers"]], settings.layers, change("layers"));
  const heads = field("Attention of", layers);
  const learns = h("input", { type: "checkbox", checked: Boolean(settings.adaptive),
    onchange: () => change("adaptive")(learns.checked ? "1" : "") });
  const learning = h("label", { class: "ticked" }, learns, " Learn while reading");
  learning.hidden = !settings.adaptive; // until it is known whether the model can
  main.append(
    h("div", { class: "bar" }, field("Run", picker(runs, settings.run, choose)), learning, field("Compared with", other),
      field("Example", examples), heads),
    text, task.element, out);
  await refresh();
}

function nothingToRead(out) {
  replace(out, h("p", { class: "quiet" }, "Type or paste a text above, or choose an example."));
}

async function readOne(out, settings, signal, showControls) {
  if (!settings.text) return nothingToRead(out);
  const { run, text } = settings;
  const adaptive = Boolean(settings.adaptive);
  const reading = await post("/api/read", { run, text, adaptive }, signal);
  showControls(reading);
  let attention = null;
  let adaptation = null;
  let marked = [];
  const card = h("div", { class: "card about", "aria-live": "polite" });
  const tokens = walk("The text, token by token: the arrow keys move", (i) => {
    replace(card, [...tokenDetails(reading, i, attention), ...tokenCosts(adaptation, i)].filter(Boolean));
    marked = markAttention(tokens.spans, attention, i, marked);
  }, () => {}, (i) => moved(settings, i));
  replace(card, h("p", { class: "quiet" }, "Point at a token, or walk through them with the arrow keys."));
  const below = h("section", {});
  replace(out, [totals([reading.adaptive ? `${run}, adaptive` : run], [reading]), preprocessingNote([run], [reading]), coloured(), legend(),
    h("div", { class: "beside" }, tokens.place, card), below]);
  await tokens.fill(reading.tokens, reading.bits.map((one, i) => level(one, reading.bytes[i])), signal);
  if (settings.at) tokens.go(Number(settings.at), false);
  if (!reading.tokens.length) return;
  out.removeAttribute("aria-busy"); // what comes later need not be waited for
  if (reading.adaptive) adaptation = await adaptationView(below, { run, text, adaptive }, reading.tokens, signal);
  if (adaptation && card.querySelector("table")) tokens.go(tokens.current, tokens.place.contains(document.activeElement));
  if (!reading.has_attention) return;
  try {
    attention = await post("/api/read/attention", { run, text, layers: settings.layers || "last" }, signal);
  } catch (error) {
    if (!signal.aborted) out.append(errorMessage(error)); // the reading itself is complete
    return;
  }
  if (card.querySelector("table")) tokens.go(tokens.current, tokens.place.contains(document.activeElement));
}

/** The address has the selected token, too. */
function moved(settings, at) {
  settings.at = String(at);
  remember("read", settings);
}

/** A note where preprocessing changes the text, so that the bytes are not its own. */
function preprocessingNote(names, readings) {
  const changed = names.filter((_, i) => !readings[i].comparable);
  return changed.length > 0 && h("p", { class: "quiet" },
    `${changed.join(" and ")} does not read the text unchanged, so these results are not comparable with others.`);
}

async function compare(out, settings, signal, showControls) {
  if (!settings.text) return nothingToRead(out);
  const { run, other, text } = settings;
  const compared = await post("/api/read/compare", { run, other, text, adaptive: Boolean(settings.adaptive) }, signal);
  const readings = [compared.first, compared.second];
  showControls(compared.first);
  const names = [run, other].map((name, i) => (readings[i].adaptive ? `${name}, adaptive` : name));
  const card = h("div", { class: "card about", "aria-live": "polite" },
    h("p", { class: "quiet" }, "Point at a span or a token, or walk through them with the arrow keys."));
  const view = readingComparison(names, compared, card, settings.at, (at) => moved(settings, at));
  replace(out, [totals(names, readings), preprocessingNote(names, readings), h("div", { class: "beside" }, view.place, card)]);
  await view.fill(signal);
}
