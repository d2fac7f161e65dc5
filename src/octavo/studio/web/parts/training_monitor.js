// The training run in progress: its status, its curve as it grows, the end of its log, and a button to stop it.

import { get, post } from "/web/api.js";
import { errorMessage, h, replace } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { axisControls, chartOf } from "/web/parts/run_details.js";
import { RunCurve } from "/web/parts/run_curve.js";
import { duration } from "/web/parts/numbers.js";

const POLL_MS = 1000;
const IDLE_POLL_MS = 4000; // while nothing is being trained

const isActive = (training) => training != null && training.state !== "ended";

export class TrainingMonitor {
  /** Polls until the signal is aborted; `on.changed(training)` is called when a run starts or ends, `on.view` when the
   * axes are changed. */
  constructor(on, view, signal) {
    Object.assign(this, { on, view, signal, training: null, curve: null, silent: false });
    this.element = h("section", { class: "live", "aria-label": "Training in progress", hidden: true });
    this.title = h("h2", {});
    this.status = h("p", { role: "status" });
    this.bar = h("progress", { max: 1, "aria-label": "training progress" });
    this.stop = h("button", { type: "button", onclick: () => this.#stop() }, "Stop");
    this.wrong = h("div", { "aria-live": "polite" });
    this.lines = h("pre", {});
    this.log = h("details", {}, h("summary", {}, "End of the log"), this.lines);
    this.command = h("code", {});
    this.ending = h("p", { class: "quiet" }, "If the studio is closed, training stops with a checkpoint and can be resumed.");
    this.sample = h("pre", { class: "sample" });
    this.written = h("div", { hidden: true }, h("h3", {}, "Sample"), this.sample);
    this.chart = new Chart("Training in progress");
    this.controls = h("div", {});
    this.picture = h("div", { hidden: true }, this.chart.element, this.controls);
    const top = h("div", { class: "bar" }, this.status, this.bar, this.stop);
    this.element.append(h("div", { class: "card" }, this.title, top, this.wrong, this.picture, this.written,
      this.log, h("p", { class: "quiet" }, "The same in a terminal: ", this.command), this.ending));
    this.#axes(view);
  }

  #axes(view) {
    this.view = view;
    replace(this.controls, axisControls(this.curve ? [this.curve] : [], view, (next) => {
      const place = [...this.controls.querySelectorAll("select, input")].indexOf(document.activeElement);
      this.#axes(next);
      this.on.view(next);
      this.#draw();
      this.controls.querySelectorAll("select, input")[place]?.focus();
    }));
  }

  async poll() {
    while (!this.signal.aborted) {
      if (!document.hidden) await this.update();
      await new Promise((resolve) => setTimeout(resolve, isActive(this.training) ? POLL_MS : IDLE_POLL_MS));
    }
  }

  /** Get the status and show it. */
  async update() {
    try {
      await this.show(await get("/api/training", this.signal));
      if (this.silent) replace(this.wrong, []);
      this.silent = false;
    } catch (error) {
      if (this.signal.aborted) return;
      this.silent = true;
      replace(this.wrong, errorMessage(error));
    }
  }

  /** Show a training run; null: there is none. */
  async show(training) {
    const before = this.training;
    this.training = training;
    this.element.hidden = training == null || (before == null && !isActive(training));
    const isNew = training != null && training.started !== before?.started;
    if (isNew) {
      this.curve = new RunCurve(training.run);
      replace(this.wrong, []);
      this.log.open = false;
    }
    if (training != null && !this.element.hidden) await this.#fill(training, isNew);
    if (isNew || isActive(before) !== isActive(training)) this.on.changed(training);
  }

  async #fill(training, isNew) {
    const { state, status, run, budget_seconds: budget, trained_seconds: trained, remaining_seconds: left } = training;
    replace(this.title, `Training ${run}`);
    const time = left != null && trained != null && state === "running" ? `, ${duration(left)} left` : "";
    replace(this.status, `${status[0].toUpperCase()}${status.slice(1)}${time}.`);
    this.bar.hidden = state === "ended" || !budget;
    this.bar.value = budget ? Math.min(1, (trained ?? 0) / budget) : 0;
    this.stop.hidden = state === "ended" || state === "elsewhere";
    this.stop.disabled = state === "stopping";
    this.ending.hidden = state !== "running" || !budget;
    replace(this.command, training.command);
    replace(this.lines, training.log.join("\n"));
    this.log.hidden = !training.log.length;
    if (state === "ended" && training.exit_code !== 0 && !training.has_curve) this.log.open = true;
    if (!training.has_curve) {
      this.picture.hidden = this.written.hidden = true;
    } else if (await this.curve.read(this.signal) || isNew) {
      this.#draw();
    }
  }

  #draw() {
    const first = this.picture.hidden;
    this.picture.hidden = this.curve.empty;
    if (this.curve.empty) return;
    if (first) this.#axes(this.view); // what can be shown is known now
    this.chart.draw({ ...chartOf([this.curve], this.view), empty: "No step has been made yet." });
    this.written.hidden = !this.curve.sample;
    replace(this.sample, this.curve.sample);
  }

  async #stop() {
    this.stop.disabled = true;
    try {
      await this.show(await post("/api/training/stop", {}, this.signal));
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, errorMessage(error));
    }
  }
}
