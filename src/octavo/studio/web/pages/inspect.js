// What a model of any family does while it reads a sentence. One text serves all runs.

import { post } from "/web/api.js";
import { choice, debounce, field, h, latest, replace } from "/web/dom.js";
import { remember as write } from "/web/main.js";
import { attentionView, headsView } from "/web/parts/attention.js";
import { tableView } from "/web/parts/token_table.js";
import { curveView, layersView, maskedView } from "/web/parts/layer_views.js";
import { limitPaste } from "/web/parts/text_field.js";
import { cancellable } from "/web/parts/cancellable.js";
import { openPage, picker } from "/web/parts/run_picker.js";
import { imageView } from "/web/parts/image_attention.js";
import { rowsView } from "/web/parts/gate_views.js";
import { tabs } from "/web/parts/tabs.js";

const SENTENCE = "The cat sat on the mat. The dog lay by the door.";
const DRAWINGS = { // by the kind of a view
  "token-table": tableView, "token-maps": attentionView, heads: headsView, "token-rows": rowsView, layers: layersView,
  curve: curveView, masked: maskedView, image: imageView,
};
const OF_A_TEXT = ["token", "from", "at", "strip"]; // settings that mean nothing for another text
const OF_A_RUN = [...OF_A_TEXT, "gate", "unit", "language"]; // nor these for another run

export async function show(main, params, signal) {
  const opened = await openPage(main, params, signal, { page: "inspect", what: "model to look into",
    command: "octavo train ngram shakespeare --out runs/kn5" });
  if (!opened) return;
  const settings = { text: SENTENCE, ...Object.fromEntries(params), run: opened.chosen("run") };
  const views = h("div", {});
  const text = limitPaste(h("textarea", { rows: 3, maxlength: 20000, spellcheck: "false", value: settings.text }));
  const page = { settings, about: null, remember, go, again, write: rewrite };
  const wanted = () => write("inspect", { ...settings, text: settings.text === SENTENCE ? "" : settings.text });
  let asking = null; // of the view that is shown
  let place = null;

  function remember(changed) {
    if (signal.aborted) return;
    Object.assign(settings, changed);
    wanted();
  }

  function forget(names) {
    for (const name of names) delete settings[name];
  }

  /** Show a view of the run. */
  function go(view, changed = {}) {
    remember({ ...changed, view });
    place.mark(view);
    again();
  }

  function again() {
    const { kind } = page.about.views.find((one) => one.view === settings.view);
    asking.start((ended) => DRAWINGS[kind](place.panel, page, ended));
  }

  function rewrite(next) {
    text.value = next;
    typed();
  }

  function typed() {
    forget(OF_A_TEXT);
    remember({ text: text.value });
    if (page.about && page.about.family !== "vision") again();
  }

  const load = latest(views, signal);
  const open = () => load(async (ended) => {
    page.about = null;
    asking?.start(async () => {}); // what is asked of the run before is not wanted any more
    const about = await post("/api/inspect/about", { run: settings.run }, ended);
    page.about = about;
    if (!about.views.length) {
      replace(views, h("p", {}, `${settings.run} has nothing to show: its model declares no views.`));
      return;
    }
    if (!about.views.some((one) => one.view === settings.view)) settings.view = about.views[0].view;
    writing.hidden = about.family === "vision";
    const into = () => choice(about.languages.map((name) => [name]), settings.language, (language) => {
      remember({ language });
      again();
    });
    replace(languages, about.languages.length > 1 ? field("Into", into()) : []);
    place = viewTabs(about);
    const summary = about.summary !== settings.run && h("p", { class: "quiet small" }, about.summary);
    asking = cancellable(place.panel, signal);
    replace(views, [summary, place.bar, asking.element, place.panel]);
    wanted();
    again();
  });

  function viewTabs(about) {
    return tabs(about.views, settings.view, (view) => {
      forget(OF_A_TEXT);
      remember({ view });
      again();
    }, `Views of ${settings.run}`);
  }

  const languages = h("span", {});
  text.addEventListener("input", debounce(typed, 400));
  const writing = field("Text", text, "Every run reads the same; what it was trained on decides what its tokens are.");
  writing.classList.add("wide", "inspected");
  main.append(
    h("div", { class: "bar" }, field("Run", picker(opened.runs, settings.run, (run) => {
      forget(OF_A_RUN);
      remember({ run });
      open();
    })), languages),
    writing, views);
  await open();
}
