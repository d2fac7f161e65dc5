// A text read by one model or two: each token on the colour of what it cost, and what was expected instead.

import { post } from "/web/api.js";
import { debounce, errorMessage, field, h, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { difference } from "/web/parts/reading_comparison.js";
import { tellCut } from "/web/parts/text_field.js";
import { patient } from "/web/parts/cancellable.js";
import { missingRuns, noRuns, picker, runsFor, runLabel } from "/web/parts/run_picker.js";
import { about, markSeen, totals } from "/web/parts/reading_details.js";
import { coloured, legend, level, walk } from "/web/parts/tokens.js";

const LONGEST = 20000; // characters, as the studio allows
const EXAMPLES = {
  "A plain sentence": "The train was late again, so we walked home along the river in the rain.",
  "The same sentence twice": "My neighbour keeps bees on the roof. My neighbour keeps bees on the roof.",
  "A scene from a play": "KING:\nWho comes so late? Speak, or be gone.\n\nMESSENGER:\nMy lord, the war is won.\n",
  "Numbers and code": "for i in range(10):\n    total = total + i * 3.14\nprint(total)  # 141.3\n",
  "Odd words": "A zqxj brought 77 umbrellas — naïve, perhaps — to the café at 25:61.",
};

export async function show(main, params, signal) {
  const runs = await runsFor([""], signal);
  main.append(h("h1", {}, "Read"));
  if (!runs.length) {
    main.append(noRuns("language model", "octavo train ngram shakespeare --order 7 --tokenizer char --out runs/kn7"));
    return;
  }
  main.append(...await missingRuns([params.get("run"), params.get("other")], signal));
  const known = (name) => runs.some((one) => one.run === name);
  const settings = {
    run: known(params.get("run")) ? params.get("run") : runs[0].run,
    other: known(params.get("other")) ? params.get("other") : "",
    text: params.get("text") ?? EXAMPLES["A plain sentence"], layers: params.get("layers") === "all" ? "all" : "",
    at: params.get("at") ?? "",
  };
  const text = tellCut(h("textarea", {
    maxlength: LONGEST, spellcheck: "false", "aria-label": "Text", value: settings.text,
  }));
  const out = h("div", {});
  const asking = patient(out, signal);
  const refresh = () => {
    remember("read", settings);
    return asking.begin((mine) =>
      (settings.other ? compare : readOne)(out, settings, mine, (has) => { heads.hidden = !has; }));
  };
  const soon = debounce(refresh, 300);
  const set = (name, value) => Object.assign(settings, { at: name === "layers" ? settings.at : "", [name]: value });
  text.addEventListener("input", () => { set("text", text.value); soon(); });
  const change = (name) => (value) => { set(name, value); refresh(); };
  const other = h("select", { onchange: () => change("other")(other.value) },
    h("option", { value: "" }, "nothing"),
    runs.map((one) => h("option", { value: one.run, selected: one.run === settings.other }, runLabel(one))));
  const examples = h("select", { onchange: () => {
    if (!examples.value) return;
    set("text", text.value = EXAMPLES[examples.value]);
    examples.value = "";
    refresh();
  } }, h("option", { value: "" }, "choose …"), Object.keys(EXAMPLES).map((one) => h("option", { value: one }, one)));
  const layers = h("select", { onchange: () => change("layers")(layers.value) },
    h("option", { value: "" }, "the last layer"),
    h("option", { value: "all", selected: settings.layers === "all" }, "all layers"));
  const heads = field("Attention of", layers);
  main.append(
    h("div", { class: "bar" }, field("Run", picker(runs, settings.run, change("run"))), field("Compared with", other),
      field("Example", examples), heads),
    text, asking.element, out);
  await refresh();
}

function nothingToRead(out) {
  replace(out, h("p", { class: "quiet" }, "Type or paste a text above, or choose an example."));
}

async function readOne(out, settings, signal, attends) {
  if (!settings.text) return nothingToRead(out);
  const { run, text } = settings;
  const told = await post("/api/read", { run, text }, signal);
  attends(told.looks);
  let looked = null;
  let marked = [];
  const card = h("div", { class: "card about", "aria-live": "polite" });
  const tokens = walk("The text, token by token: the arrow keys move", (i) => {
    replace(card, about(told, i, looked));
    marked = markSeen(tokens.spans, looked, i, marked);
  }, () => {}, (i) => moved(settings, i));
  replace(card, h("p", { class: "quiet" }, "Point at a token, or walk through them with the arrow keys."));
  replace(out, [totals([run], [told]), unlike([run], [told]), coloured(), legend(),
    h("div", { class: "beside" }, tokens.place, card)]);
  await tokens.fill(told.tokens, told.bits.map((one, i) => level(one, told.bytes[i])), signal);
  if (settings.at) tokens.go(Number(settings.at), false);
  if (!told.looks || !told.tokens.length) return;
  out.removeAttribute("aria-busy"); // what it looked at comes later, and nobody need wait for it
  const asked = { run, text, layers: settings.layers || "last" };
  try {
    looked = await post("/api/looked", asked, signal);
  } catch (error) {
    if (!signal.aborted) out.append(errorMessage(error)); // the reading itself stands
    return;
  }
  if (card.querySelector("table")) tokens.go(tokens.current, tokens.place.contains(document.activeElement));
}

/** The token that is told about stands in the address, too. */
function moved(settings, at) {
  settings.at = String(at);
  remember("read", settings);
}

/** Said where the bytes are not those of the text. */
function unlike(names, readings) {
  const changed = names.filter((_, i) => !readings[i].comparable);
  return changed.length > 0 && h("p", { class: "quiet" },
    `${changed.join(" and ")} does not read the text as it stands, so these figures are not comparable with others.`);
}

async function compare(out, settings, signal, attends) {
  if (!settings.text) return nothingToRead(out);
  const { run, other, text } = settings;
  const told = await post("/api/compare", { run, other, text }, signal);
  attends(false);
  const names = [run, other];
  const readings = [told.first, told.second];
  const card = h("div", { class: "card about", "aria-live": "polite" },
    h("p", { class: "quiet" }, "Point at a stretch or a token, or walk through them with the arrow keys."));
  const view = difference(names, told, card, settings.at, (at) => moved(settings, at));
  replace(out, [totals(names, readings), unlike(names, readings), h("div", { class: "beside" }, view.place, card)]);
  await view.fill(signal);
}
