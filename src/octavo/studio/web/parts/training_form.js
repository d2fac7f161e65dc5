// The form that starts a training run.

import { Mistake, get, post, send } from "/web/api.js";
import { field, h, replace, said } from "/web/dom.js";
import { bytes } from "/web/parts/numbers.js";

/** Of the models that can be trained: their fields, the texts, a name; `on` has model(name) and started(training). */
export async function trainForm(names, model, on, signal) {
  const told = await get("/api/forms", signal);
  return new Form(told, names, model, on, signal).element;
}

class Form {
  constructor(told, names, model, on, signal) {
    Object.assign(this, { told, names, on, signal, inputs: new Map() });
    this.form = told.models.find((one) => one.model === model) ?? told.models.find((one) => one.model === "gru");
    this.model = h("select", { name: "model", onchange: () => this.#change() }, told.models.map((one) =>
      h("option", { value: one.model, selected: one.model === this.form.model }, one.model)));
    this.about = h("small", {});
    this.text = h("select", { name: "corpus", onchange: () => this.#describe() });
    this.aboutText = h("small", {});
    this.file = h("input", { type: "file", accept: ".txt,.md,text/plain", onchange: () => this.#send() });
    this.name = h("input", {
      name: "run", required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", autocomplete: "off",
      title: "letters, digits, dots, dashes and underscores", oninput: () => (this.named = true),
    });
    this.seconds = h("input", {
      name: "seconds", type: "number", min: told.least_seconds, max: told.most_seconds, value: told.usual_seconds,
      required: true, step: "any",
    });
    this.budget = field("Seconds of training", this.seconds, `${told.most_seconds} at most`);
    this.mains = h("div", { class: "fields" });
    this.others = h("div", { class: "fields" });
    this.wrong = h("div", { "aria-live": "polite" });
    this.start = h("button", { class: "main" }, "Start training");
    this.#texts(told.texts[0]?.name);
    this.#fields();
    this.element = h("form", { class: "train", onsubmit: (event) => this.#submit(event) },
      h("div", { class: "fields" },
        h("label", { class: "field" }, h("span", {}, "Model"), this.model, this.about),
        h("label", { class: "field" }, h("span", {}, "Text to learn from"), this.text, this.aboutText),
        field("Or send a text file", this.file, `plain UTF-8 text, ${bytes(told.most_bytes)} at most; kept in texts/`),
        field("Name of the run", this.name), this.budget),
      this.mains, h("details", {}, h("summary", {}, "More settings"), this.others),
      h("div", { class: "bar" }, this.start), this.wrong);
  }

  #texts(chosen) {
    replace(this.text, this.told.texts.map((one) =>
      h("option", { value: one.name, selected: one.name === chosen }, `${one.name} (${bytes(one.bytes)})`)));
    this.start.disabled = !this.told.texts.length;
    this.#describe();
  }

  #describe() {
    const text = this.told.texts.find((one) => one.name === this.text.value);
    replace(this.aboutText, text?.told ?? "there is none on this machine yet; send one");
  }

  #change() {
    this.form = this.told.models.find((one) => one.model === this.model.value);
    this.on.model(this.form.model);
    this.#fields();
  }

  #fields() {
    this.inputs.clear();
    const made = this.form.settings.map((one) => [one, this.#field(one)]);
    replace(this.mains, made.filter(([one]) => one.main).map(([, element]) => element));
    replace(this.others, made.filter(([one]) => !one.main).map(([, element]) => element));
    replace(this.about, this.form.told);
    this.budget.hidden = !this.form.steps;
    this.seconds.disabled = !this.form.steps;
    if (!this.named) this.name.value = this.#free();
  }

  #field(setting) {
    const input = setting.kind === "choice"
      ? h("select", {}, setting.choices.map((one) => h("option", { value: one, selected: one === setting.usual }, one)))
      : h("input", {
        type: "number", min: setting.least, max: setting.most, step: setting.kind === "whole" ? 1 : "any",
        value: setting.usual ?? "", placeholder: setting.usual == null ? "as it suits" : null,
        required: setting.usual != null,
      });
    input.name = setting.name;
    this.inputs.set(setting, input);
    return field(setting.name.replaceAll("_", " "), input, setting.told);
  }

  /** A name that no run has. */
  #free() {
    for (let i = 1; ; i++) {
      const name = i === 1 ? this.form.model : `${this.form.model}-${i}`;
      if (!this.names().includes(name)) return name;
    }
  }

  async #send() {
    const [file] = this.file.files;
    if (!file) return;
    replace(this.wrong, h("p", { class: "quiet" }, `Sending ${file.name} …`));
    try {
      if (file.size > this.told.most_bytes) {
        throw new Mistake(`${file.name} has ${bytes(file.size)}, and a text may have ${bytes(this.told.most_bytes)}; `
          + "for a longer one, type octavo train", 413);
      }
      const kept = await send(`/api/texts?${new URLSearchParams({ name: file.name })}`, file, this.signal);
      this.told.texts = [kept, ...this.told.texts.filter((one) => one.name !== kept.name)];
      this.#texts(kept.name);
      replace(this.wrong, h("p", { class: "good", role: "status" }, `${kept.name} is kept and chosen.`));
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, said(error));
    } finally {
      this.file.value = "";
    }
  }

  async #submit(event) {
    event.preventDefault();
    const settings = {};
    for (const [setting, input] of this.inputs) {
      if (input.value !== "") settings[setting.name] = setting.kind === "choice" ? input.value : Number(input.value);
    }
    const asked = { model: this.form.model, corpus: this.text.value, run: this.name.value, settings };
    if (this.form.steps) asked.seconds = Number(this.seconds.value);
    this.start.disabled = true;
    replace(this.wrong, []);
    try {
      this.on.started(await post("/api/training", asked, this.signal));
      this.named = false;
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, said(error));
    } finally {
      this.start.disabled = false;
    }
  }
}
