// All runs: sorted, filtered, one or two looked at closely; and training, as it goes on.

import { get, post } from "/web/api.js";
import { field, h, replace, said, settled } from "/web/dom.js";
import { remember } from "/web/main.js";
import { AXES, closer } from "/web/parts/run_details.js";
import { Live } from "/web/parts/training_monitor.js";
import { absent } from "/web/parts/run_picker.js";
import { COLUMNS, filtered, put, runsTable, sorted } from "/web/parts/runs_table.js";
import { trainForm } from "/web/parts/training_form.js";

const AGAIN = 5000; // milliseconds between looks at the list
const MOST = 3600; // seconds that the studio trains
const USUAL = { sort: "figure", find: "", x: "step", log: "x" };

export async function show(main, params, signal) {
  await new Page(main, params, signal).open();
}

class Page {
  constructor(main, params, signal) {
    Object.assign(this, { main, signal, runs: [] });
    const log = params.get("log") ?? USUAL.log;
    const sort = params.get("sort") ?? USUAL.sort;
    this.view = {
      sort: COLUMNS.some((one) => one.key === sort.replace(/^-/, "")) ? sort : USUAL.sort,
      find: params.get("find") ?? USUAL.find,
      chosen: [params.get("a"), params.get("b")].filter(Boolean),
      train: params.get("train") ?? "",
    };
    this.axes = {
      x: params.get("x") in AXES ? params.get("x") : USUAL.x, logX: log.includes("x"), logY: log.includes("y"),
    };
    this.live = new Live({ changed: () => this.load(), view: (axes) => this.chart(axes) }, this.axes, signal);
    this.words = h("input", {
      type: "search", value: this.view.find, placeholder: "gru shakespeare", "aria-label": "Filter by words",
      oninput: settled(() => this.change({ find: this.words.value }), 80),
    });
    this.count = h("p", { class: "quiet", role: "status" });
    this.closer = h("section", { "aria-label": "Looked at closely" });
    this.look = closer(this.closer, signal, {
      actions: (run) => this.more(run),
      growing: (run) => this.runs.find((one) => one.run === run)?.state === "training",
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
    const lost = await absent(wanted, this.signal);
    const filter = h("div", { class: "bar" }, field("Filter by words", this.words), this.count);
    this.main.append(h("h1", {}, "Runs"), this.train, this.live.element, filter, this.wrong,
      ...lost, this.closer, this.table);
    this.draw();
    this.showClosely();
    if (this.view.train) await this.fill();
    this.live.watch();
    this.keepUp();
  }

  /** Runs may also be trained in a terminal: look now and then. */
  async keepUp() {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
      if (this.signal.aborted) return;
      if (!document.hidden) await this.load();
    }
  }

  /** Read the list anew. */
  async load() {
    const before = JSON.stringify(this.runs);
    try {
      this.runs = await get("/api/runs", this.signal);
      replace(this.wrong, []);
    } catch (error) {
      if (this.signal.aborted) return;
      if (!this.table.isConnected) throw error;
      replace(this.wrong, said(error));
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
    const { x, logX, logY } = this.axes;
    const log = `${logX ? "x" : ""}${logY ? "y" : ""}` || "no";
    const told = { sort, find, x, log };
    for (const name of Object.keys(USUAL)) if (told[name] === USUAL[name]) told[name] = "";
    remember("runs", { ...told, a: chosen[0], b: chosen[1], train });
  }

  draw() {
    const found = sorted(filtered(this.runs, this.view.find), this.view.sort);
    const { length } = this.runs;
    replace(this.count, found.length < length ? `${found.length} of ${length}`
      : length ? `${length} run${length === 1 ? "" : "s"}; tick one to look closer, two to compare them` : "");
    if (!length) {
      put(this.table, h("p", {}, "There is no run in this folder yet. Train a model above, or type ",
        h("code", {}, "octavo train ngram shakespeare --out runs/kn")));
      return;
    }
    put(this.table, found.length ? runsTable(found, this.view, {
      sort: (sort) => this.change({ sort }), choose: (run) => this.choose(run), resume: (run) => this.resume(run),
    }) : h("p", {}, "No run has all of these words."));
  }

  /** Tick a run, or take the tick away; of three, the first goes. */
  choose(run) {
    const { chosen } = this.view;
    this.change({ chosen: chosen.includes(run) ? chosen.filter((one) => one !== run) : [...chosen, run].slice(-2) });
    this.showClosely();
  }

  showClosely() {
    return this.look(this.view.chosen, this.axes, (axes) => this.chart(axes));
  }

  /** The axes of charts were changed. */
  chart(axes) {
    this.axes = axes;
    this.write();
  }

  /** Below one run: train it for longer, where that can be done here. */
  more(run) {
    const row = this.runs.find((one) => one.run === run);
    if (!row?.resumable || row.state) return null;
    const least = Math.ceil((row.seconds ?? 0) + 1);
    if (least > MOST) return null;
    const seconds = h("input", { type: "number", min: least, max: MOST, required: true, step: "any",
      value: Math.min(MOST, Math.max(least, Math.round(2 * (row.seconds ?? 30)))) });
    return h("form", { class: "bar", onsubmit: (event) => {
      event.preventDefault();
      this.resume(run, Number(seconds.value));
    } }, field("Seconds of training, in all", seconds), h("button", {}, "Train on"));
  }

  async resume(run, seconds = null) {
    replace(this.wrong, []);
    try {
      await this.live.show(await post("/api/training/resume", { run, seconds }, this.signal));
      this.live.element.scrollIntoView({ block: "start" });
    } catch (error) {
      if (!this.signal.aborted) replace(this.wrong, said(error));
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
      replace(this.form, await trainForm(() => this.runs.map((one) => one.run), this.view.train, on, this.signal));
      this.change({ train: this.form.querySelector("[name=model]").value });
    } catch (error) {
      if (!this.signal.aborted) replace(this.form, said(error));
    }
  }
}
