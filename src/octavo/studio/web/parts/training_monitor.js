// The training run in progress: where it stands, its curve as it grows, its last lines, and a button to stop it.

import { get, post } from "/web/api.js";
import { h, replace, said } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { axisControls, drawn } from "/web/parts/run_details.js";
import { Curve } from "/web/parts/run_curve.js";
import { duration } from "/web/parts/numbers.js";

const POLL = 1000; // milliseconds between looks
const IDLE = 4000; // where nothing is being trained

const goesOn = (training) => training != null && training.state !== "ended";

export class Live {
  /** Watches until the signal; `on.changed(training)` is called when a run begins or ends, `on.view` when the axes are
   * changed. */
  constructor(on, view, signal) {
    Object.assign(this, { on, view, signal, training: null, curve: null, silent: false });
    this.element = h("section", { class: "live", "aria-label": "Training in progress", hidden: true });
    this.title = h("h2", {});
    this.told = h("p", { role: "status" });
    this.bar = h("progress", { max: 1, "aria-label": "share of the training time that is spent" });
    this.stop = h("button", { type: "button", onclick: () => this.#stop() }, "Stop");
    this.wrong = h("div", { "aria-live": "polite" });
    this.lines = h("pre", {});
    this.lastLines = h("details", {}, h("summary", {}, "Last lines"), this.lines);
    this.command = h("code", {});
    this.ending = h("p", { class: "quiet" }, "When the studio ends, so does this, with a checkpoint to resume from.");
    this.sample = h("pre", { class: "sample" });
    this.written = h("div", { hidden: true }, h("h3", {}, "It writes"), this.sample);
    this.chart = new Chart("Training in progress");
    this.controls = h("div", {});
    this.picture = h("div", { hidden: true }, this.chart.element, this.controls);
    const top = h("div", { class: "bar" }, this.told, this.bar, this.stop);
    this.element.append(h("div", { class: "card" }, this.title, top, this.wrong, this.picture, this.written,
      this.lastLines, h("p", { class: "quiet" }, "The same in a terminal: ", this.command), this.ending));
    this.#axes(view);
  }

  #axes(view) {
    this.view = view;
    replace(this.controls, axisControls(view, (next) => {
      const place = [...this.controls.querySelectorAll("select, input")].indexOf(document.activeElement);
      this.#axes(next);
      this.on.view(next);
      this.#draw();
      this.controls.querySelectorAll("select, input")[place]?.focus();
    }));
  }

  async watch() {
    while (!this.signal.aborted) {
      if (!document.hidden) await this.look();
      await new Promise((resolve) => setTimeout(resolve, goesOn(this.training) ? POLL : IDLE));
    }
  }

  /** Ask where it stands, and show that. */
  async look() {
    try {
      await this.show(await get("/api/training", this.signal));
      if (this.silent) replace(this.wrong, []);
      this.silent = false;
    } catch (error) {
      if (this.signal.aborted) return;
      this.silent = true;
      replace(this.wrong, said(error));
    }
  }

  /** Show a training run; null: there is none. */
  async show(training) {
    const before = this.training;
    this.training = training;
    this.element.hidden = training == null || (before == null && !goesOn(training));
    const begun = training != null && training.began !== before?.began;
    if (begun) {
      this.curve = new Curve(training.run);
      replace(this.wrong, []);
      this.lastLines.open = false;
    }
    if (training != null && !this.element.hidden) await this.#fill(training, begun);
    if (begun || goesOn(before) !== goesOn(training)) this.on.changed(training);
  }

  async #fill(training, begun) {
    const { state, left, seconds, trained, told, run } = training;
    replace(this.title, `Training ${run}`);
    const time = left != null && trained != null && state === "running" ? `, ${duration(left)} left` : "";
    replace(this.told, `${told[0].toUpperCase()}${told.slice(1)}${time}.`);
    this.bar.hidden = state === "ended" || !seconds;
    this.bar.value = seconds ? Math.min(1, (trained ?? 0) / seconds) : 0;
    this.stop.hidden = state === "ended" || state === "elsewhere";
    this.stop.disabled = state === "stopping";
    this.ending.hidden = state !== "running" || !seconds;
    replace(this.command, training.command);
    replace(this.lines, training.lines.join("\n"));
    this.lastLines.hidden = !training.lines.length;
    if (state === "ended" && training.code !== 0 && !training.shown) this.lastLines.open = true;
    if (!training.shown) {
      this.picture.hidden = this.written.hidden = true;
    } else if (await this.curve.read(this.signal) || begun) {
      this.#draw();
    }
  }

  #draw() {
    this.picture.hidden = this.curve.empty;
    if (this.curve.empty) return;
    this.chart.draw({ ...drawn([this.curve], this.view), empty: "The first steps are on their way." });
    this.written.hidden = !this.curve.sample;
    replace(this.sample, this.curve.sample);
  }

  async #stop() {
    this.stop.disabled = true;
    try {
      await this.show(await post("/api/training/stop", {}, this.signal));
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, said(error));
    }
  }
}
