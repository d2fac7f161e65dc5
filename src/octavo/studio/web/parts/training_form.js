// The form that starts a training run.

import { ApiError, get, post, upload } from "/web/api.js";
import { choice, errorMessage, field, h, replace } from "/web/dom.js";
import { bytes } from "/web/parts/numbers.js";

/** Asks for a model, its settings, a text and a name; `on` has model(name) and started(training). */
export async function trainingForm(names, model, on, signal) {
  const forms = await get("/api/forms", signal);
  return new Form(forms, names, model, on, signal).element;
}

class Form {
  constructor(forms, names, model, on, signal) {
    Object.assign(this, { forms, names, on, signal, inputs: new Map() });
    this.form = forms.models.find((one) => one.model === model) ?? forms.models.find((one) => one.model === "gru");
    this.model = choice(forms.models.map((one) => [one.model]), this.form.model, () => this.#change(), { name: "model" });
    this.about = h("small", {});
    this.text = h("select", { name: "corpus", onchange: () => this.#describe() });
    this.aboutText = h("small", {});
    this.file = h("input", { type: "file", accept: ".txt,.md,text/plain", onchange: () => this.#upload() });
    this.name = h("input", {
      name: "run", required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", autocomplete: "off",
      title: "letters, digits, dots, dashes and underscores", oninput: () => (this.named = true),
    });
    this.seconds = h("input", {
      name: "seconds", type: "number", min: forms.min_seconds, max: forms.max_seconds, value: forms.default_seconds,
      required: true, step: "any",
    });
    this.budget = field("Seconds of training", this.seconds, `${forms.max_seconds} at most`);
    this.mains = h("div", { class: "fields" });
    this.others = h("div", { class: "fields" });
    this.wrong = h("div", { "aria-live": "polite" });
    this.start = h("button", { class: "main" }, "Start training");
    this.upload = field("Or upload a text file", this.file,
      `plain UTF-8 text, ${bytes(forms.max_bytes)} at most; stored in texts/`);
    this.#fields();
    this.element = h("form", { class: "train", onsubmit: (event) => this.#submit(event) },
      h("div", { class: "fields" },
        h("label", { class: "field" }, h("span", {}, "Model"), this.model, this.about),
        h("label", { class: "field" }, h("span", {}, "Data to train on"), this.text, this.aboutText), this.upload,
        field("Name of the run", this.name), this.budget),
      this.mains, h("details", {}, h("summary", {}, "More settings"), this.others),
      h("div", { class: "bar" }, this.start), this.wrong);
  }

  /** The data that the model's task can be trained on. */
  #texts(chosen) {
    const texts = this.forms.texts.filter((one) => one.tasks.includes(this.form.task));
    replace(this.text, texts.map((one) => h("option", { value: one.name, selected: one.name === chosen },
      one.bytes == null ? one.name : `${one.name} (${bytes(one.bytes)})`)));
    this.start.disabled = !texts.length;
    this.upload.hidden = !this.forms.file_tasks.includes(this.form.task);
    this.#describe();
  }

  #describe() {
    const text = this.forms.texts.find((one) => one.name === this.text.value);
    replace(this.aboutText, text?.description ?? "there are none on this machine yet");
  }

  #change() {
    this.form = this.forms.models.find((one) => one.model === this.model.value);
    this.on.model(this.form.model);
    this.#fields();
  }

  #fields() {
    this.inputs.clear();
    const made = this.form.settings.map((one) => [one, this.#field(one)]);
    replace(this.mains, made.filter(([one]) => one.main).map(([, element]) => element));
    replace(this.others, made.filter(([one]) => !one.main).map(([, element]) => element));
    replace(this.about, this.form.description);
    this.#texts(this.text.value);
    this.budget.hidden = !this.form.has_budget;
    this.seconds.disabled = !this.form.has_budget;
    if (!this.named) this.name.value = this.#free();
  }

  #field(setting) {
    const input = setting.kind === "choice"
      ? choice(setting.choices.map((one) => [one]), setting.default, () => {})
      : h("input", {
        type: "number", min: setting.min, max: setting.max, step: setting.kind === "integer" ? 1 : "any",
        value: setting.default ?? "", placeholder: setting.default == null ? "automatic" : null,
        required: setting.default != null,
      });
    input.name = setting.name;
    this.inputs.set(setting, input);
    return field(setting.name.replaceAll("_", " "), input, setting.description);
  }

  /** A name that no run has. */
  #free() {
    for (let i = 1; ; i++) {
      const name = i === 1 ? this.form.model : `${this.form.model}-${i}`;
      if (!this.names().includes(name)) return name;
    }
  }

  async #upload() {
    const [file] = this.file.files;
    if (!file) return;
    replace(this.wrong, h("p", { class: "quiet" }, `Uploading ${file.name} …`));
    try {
      if (file.size > this.forms.max_bytes) {
        throw new ApiError(`${file.name} has ${bytes(file.size)}, and a text may have ${bytes(this.forms.max_bytes)}; `
          + "for a longer one, type octavo train", 413);
      }
      const stored = await upload(`/api/texts?${new URLSearchParams({ name: file.name })}`, file, this.signal);
      this.forms.texts = [stored, ...this.forms.texts.filter((one) => one.name !== stored.name)];
      this.#texts(stored.name);
      replace(this.wrong, h("p", { class: "good", role: "status" }, `${stored.name} is stored and selected.`));
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, errorMessage(error));
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
    const request = { model: this.form.model, corpus: this.text.value, run: this.name.value, settings };
    if (this.form.has_budget) request.seconds = Number(this.seconds.value);
    this.start.disabled = true;
    replace(this.wrong, []);
    try {
      this.on.started(await post("/api/training", request, this.signal));
      this.named = false;
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, errorMessage(error));
    } finally {
      this.start.disabled = false;
    }
  }
}
