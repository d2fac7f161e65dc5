// All runs: sorted, filtered, the details of one or two; and the training run in progress.

import { get, post } from "/web/api.js";
import { debounce, errorMessage, field, h, replace } from "/web/dom.js";
import { remember } from "/web/main.js";
import { AXES, runDetails } from "/web/parts/run_details.js";
import { TrainingMonitor } from "/web/parts/training_monitor.js";
import { missingRuns } from "/web/parts/run_picker.js";
import { COLUMNS, filtered, put, runsTable, sorted } from "/web/parts/runs_table.js";
import { trainingForm } from "/web/parts/training_form.js";

const POLL_MS = 5000; // between two readings of the list
const MAX_SECONDS = 3600; // of training, as the studio allows
const DEFAULTS = { sort: "score", find: "", x: "step", log: "x" };

export async function show(main, params, signal) {
  await new Page(main, params, signal).open();
}

class Page {
  constructor(main, params, signal) {
    Object.assign(this, { main, signal, runs: [] });
    const log = params.get("log") ?? DEFAULTS.log;
    const sort = params.get("sort") ?? DEFAULTS.sort;
    this.view = {
      sort: COLUMNS.some((one) => one.key === sort.replace(/^-/, "")) ? sort : DEFAULTS.sort,
      find: params.get("find") ?? DEFAULTS.find,
      chosen: [params.get("a"), params.get("b")].filter(Boolean),
      train: params.get("train") ?? "",
    };
    this.axes = {
      x: params.get("x") in AXES ? params.get("x") : DEFAULTS.x, y: params.get("y") ?? "", logX: log.includes("x"), logY: log.includes("y"),
    };
    this.live = new TrainingMonitor({ changed: () => this.load(), view: (axes) => this.chart(axes) }, this.axes, signal);
    this.words = h("input", {
      type: "search", value: this.view.find, placeholder: "gru shakespeare", "aria-label": "Filter by words",
      oninput: debounce(() => this.change({ find: this.words.value }), 80),
    });
    this.count = h("p", { class: "quiet", role: "status" });
    this.details = h("section", { "aria-label": "Details" });
    this.showDetails = runDetails(this.details, signal, {
      actions: (run) => this.trainLonger(run),
      isTraining: (run) => this.runs.find((one) => one.run === run)?.state === "training",
    });
    this.table = h("div", { class: "runs" });
    this.wrong = h("div", { "aria-live": "polite" });
    this.form = h("div", {});
    this.train = h("details", { class: "card", id: "train", open: Boolean(this.view.train) },
      h("summary", {}, "Train a model"), this.form);
    this.train.addEventListener("toggle", () => this.toggled());
  }

  async open() {
    const wanted = this.view.chosen;
    await this.load();
    const lost = missingRuns(this.runs, wanted);
    const filter = h("div", { class: "bar" }, field("Filter by words", this.words), this.count);
    this.main.append(h("h1", {}, "Runs"), this.train, this.live.element, filter, this.wrong,
      ...lost, this.details, this.table);
    this.draw();
    this.showSelected();
    if (this.view.train) await this.fill();
    this.live.poll();
    this.poll();
  }

  /** Runs may also be trained in a terminal: read the list now and then. */
  async poll() {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (this.signal.aborted) return;
      if (!document.hidden) await this.load();
    }
  }

  /** Read the list again. */
  async load() {
    const before = JSON.stringify(this.runs);
    try {
      this.runs = await get("/api/runs", this.signal);
      replace(this.wrong, []);
    } catch (error) {
      if (this.signal.aborted) return;
      if (!this.table.isConnected) throw error;
      replace(this.wrong, errorMessage(error));
      return;
    }
    this.view.chosen = this.view.chosen.filter((run) => this.runs.some((one) => one.run === run));
    if (this.table.isConnected && JSON.stringify(this.runs) !== before) this.draw();
  }

  change(settings) {
    Object.assign(this.view, settings);
    this.write();
    this.draw();
  }

  write() {
    const { sort, find, chosen, train } = this.view;
    const { x, y, logX, logY } = this.axes;
    const log = `${logX ? "x" : ""}${logY ? "y" : ""}` || "no";
    const settings = { sort, find, x, log };
    for (const name of Object.keys(DEFAULTS)) if (settings[name] === DEFAULTS[name]) settings[name] = "";
    remember("runs", { ...settings, y, a: chosen[0], b: chosen[1], train });
  }

  draw() {
    const found = sorted(filtered(this.runs, this.view.find), this.view.sort);
    const { length } = this.runs;
    replace(this.count, found.length < length ? `${found.length} of ${length}`
      : length ? `${length} run${length === 1 ? "" : "s"}; tick one for its details, two to compare them` : "");
    if (!length) {
      put(this.table, h("p", {}, "There is no run in this folder yet. Train a model above, or type ",
        h("code", {}, "octavo train ngram shakespeare --out runs/kn")));
      return;
    }
    put(this.table, found.length ? runsTable(found, this.view, {
      sort: (sort) => this.change({ sort }), choose: (run) => this.choose(run), resume: (run) => this.resume(run),
    }) : h("p", {}, "No run has all of these words."));
  }

  /** Select a run, or deselect it; of three, the first is deselected. */
  choose(run) {
    const { chosen } = this.view;
    this.change({ chosen: chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run].slice(-2) });
    this.showSelected();
  }

  showSelected() {
    return this.showDetails(this.view.chosen, this.axes, (axes) => this.chart(axes));
  }

  /** The axes of charts were changed. */
  chart(axes) {
    this.axes = axes;
    this.write();
  }

  /** A form that trains a run for longer, where that can be done here. */
  trainLonger(run) {
    const row = this.runs.find((one) => one.run === run);
    if (!row?.resumable || row.state) return null;
    const least = Math.ceil((row.seconds ?? 0) + 1);
    if (least > MAX_SECONDS) return null;
    const seconds = h("input", { type: "number", min: least, max: MAX_SECONDS, required: true, step: "any",
      value: Math.min(MAX_SECONDS, Math.max(least, Math.round(2 * (row.seconds ?? 30)))) });
    return h("form", { class: "bar", onsubmit: (event) => {
      event.preventDefault();
      this.resume(run, Number(seconds.value));
    } }, field("Seconds of training, in total", seconds), h("button", {}, "Train longer"));
  }

  async resume(run, seconds = null) {
    replace(this.wrong, []);
    try {
      await this.live.show(await post("/api/training/resume", { run, seconds }, this.signal));
      this.live.element.scrollIntoView({ block: "start" });
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, errorMessage(error));
    }
  }

  toggled() {
    if (!this.train.isConnected) return; // the page is being opened, and does this itself
    if (this.train.open === Boolean(this.view.train) && this.form.firstChild) return;
    if (!this.train.open) this.change({ train: "" });
    else if (!this.form.firstChild) this.fill();
    else this.change({ train: this.form.querySelector("[name=model]")?.value ?? "" });
  }

  /** The form, when it is first asked for. */
  async fill() {
    if (this.form.firstChild) return;
    replace(this.form, h("p", { class: "quiet", role: "status" }, "Opening the form …"));
    const started = async (training) => {
      this.train.open = false;
      await this.live.show(training);
      this.live.element.scrollIntoView({ block: "nearest" });
    };
    const on = { model: (train) => this.change({ train }), started };
    try {
      replace(this.form, await trainingForm(() => this.runs.map((one) => one.run), this.view.train, on, this.signal));
      this.change({ train: this.form.querySelector("[name=model]").value });
    } catch (error) {
      if (!this.signal.aborted) replace(this.form, errorMessage(error));
    }
  }
}
