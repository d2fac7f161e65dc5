// Exercises with sliders: the figure changes while they move.

import { get, post } from "/web/api.js";
import { choice, field, h, latest, replace } from "/web/dom.js";
import { addressOf, remember } from "/web/main.js";
import { Chart } from "/web/parts/chart.js";
import { plain } from "/web/parts/numbers.js";
import { columns, scrolled } from "/web/parts/table.js";

const LOG_SLIDER_STEPS = 400;

export async function showPlayground(place, params, signal) {
  const plays = await get("/api/playground", signal);
  const controls = h("div", { class: "controls" }), output = h("div", { class: "output" });
  const chart = new Chart("The result");
  const computing = latest(output, signal);
  let play = plays.find((one) => one.name === params.get("name")) ?? plays[0];
  let values = {}, isComputing = false, isOutdated = false;

  const compute = async () => {
    // One request at a time, then one with the newest values: the output follows the slider, and no queue builds up.
    if (isComputing) { isOutdated = true; return; }
    isComputing = true;
    remember("exercises", { view: "play", name: play.name, ...Object.fromEntries(Object.entries(values)
      .map(([name, value]) => [name, Array.isArray(value) ? JSON.stringify(value) : value])) });
    await computing(async (still) => {
      const name = play.name, sent = { ...values };
      const result = await post(`/api/playground/${encodeURIComponent(name)}`, { values }, still);
      if (name !== play.name) return;
      replace(output, [h("p", { "aria-live": "polite", class: "summary" }, result.summary), chart.element,
        numbersOf(result)]);
      const moved = play.parameters.find((one) => one.label === result.axes[0]); // it moves along the x axis
      chart.draw({ series: result.series, x: result.axes[0], y: result.axes[1], logX: result.log[0],
        logY: result.log[1], guide: moved && sent[moved.name] });
    });
    output.removeAttribute("aria-busy");
    isComputing = false;
    if (isOutdated && !signal.aborted) { isOutdated = false; compute(); }
  };
  const open = (given) => {
    values = {};
    const exercise = addressOf("exercises", { id: play.exercise_id });
    const made = play.parameters.map((one) => {
      values[one.name] = first(one, given?.get(one.name));
      return control(one, values[one.name], (value) => { values[one.name] = value; compute(); });
    });
    replace(controls, [h("p", {}, h("a", { href: exercise }, "The exercise, with its answer")), made]);
    compute();
  };
  const list = choice(plays.map((one) => [one.name, one.title]), play.name, (name) => {
    play = plays.find((one) => one.name === name);
    open(null);
  }, { "aria-label": "What to try" });
  replace(place, [h("div", { class: "bar" }, field("What to try", list)),
    h("div", { class: "side play" }, controls, output)]);
  open(params);
}

/** The value in the address, where it is valid; else the default. */
function first(one, given) {
  if (given == null || given === "") return one.value;
  if (one.kind === "option") return given in one.options ? given : one.value;
  if (one.kind === "table") {
    try {
      const rows = JSON.parse(given);
      const even = (row) => row.length === rows[0].length && row.every((x) => typeof x === "number");
      return rows.length && rows.every(even) ? rows : one.value;
    } catch { return one.value; }
  }
  const x = +given;
  return x >= one.low && x <= one.high ? x : one.value;
}

function control(one, value, changed) {
  if (one.kind === "option") return option(one, value, changed);
  return one.kind === "table" ? table(one, value, changed) : slider(one, value, changed);
}

function option(one, value, changed) {
  const hint = h("small", {}, one.options[value]);
  const list = choice(Object.keys(one.options).map((name) => [name]), value, (name) => {
    hint.textContent = one.options[name];
    changed(name);
  });
  return h("label", { class: "field wide" }, h("span", {}, one.label), list, hint);
}

/** A slider and a field for the same number; a logarithmic one moves over the logarithm. */
function slider(one, value, changed) {
  const low = one.log ? Math.log(one.low) : one.low, high = one.log ? Math.log(one.high) : one.high;
  const places = (String(one.step).split(".")[1] ?? "").length;
  const rounded = (x) => Math.min(one.high, Math.max(one.low, +(Math.round(x / one.step) * one.step).toFixed(places)));
  const range = h("input", { type: "range", min: low, max: high, step: one.log ? (high - low) / LOG_SLIDER_STEPS : one.step,
    value: one.log ? Math.log(value) : value, "aria-label": one.label, "aria-valuetext": plain(value),
    oninput: () => set(rounded(one.log ? Math.exp(+range.value) : +range.value), number) });
  const number = h("input", { type: "number", min: one.low, max: one.high, step: one.step, value,
    "aria-label": `${one.label}, as a number`, onchange: () => {
      const x = rounded(+number.value || one.low);
      number.value = x;
      set(x, range);
    } });
  const set = (x, other) => {
    other.value = other === range && one.log ? Math.log(x) : x;
    range.setAttribute("aria-valuetext", plain(x));
    changed(x);
  };
  return h("div", { class: "field wide" }, h("span", {}, one.label), h("div", { class: "slider" }, range, number));
}

/** A small table of non-negative numbers; rows and columns can be added and removed. */
function table(one, value, changed) {
  let rows = value.map((row) => [...row]);
  const place = h("div");
  const draw = () => replace(place, [h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, ["first", ...rows[0].map((_, j) => `then ${j}`)].map((name) =>
      h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row, i) => h("tr", {}, h("th", { scope: "row" }, i),
      row.map((x, j) => h("td", {}, cell(x, i, j))))))),
  h("div", { class: "bar" }, h("button", { disabled: rows.length >= one.most, onclick: () => size(1) }, "Larger"),
    h("button", { disabled: rows.length <= one.fewest, onclick: () => size(-1) }, "Smaller"))]);
  const cell = (x, i, j) => {
    const input = h("input", { type: "number", min: 0, step: "any", value: x, "aria-label": `first ${i}, then ${j}`,
      oninput: () => {
        if (input.value === "" || !(+input.value >= 0)) return;
        rows[i][j] = +input.value;
        changed(rows);
      } });
    return input;
  };
  const size = (by) => {
    const n = rows.length + by;
    rows = Array.from({ length: n }, (_, i) => Array.from({ length: n }, (__, j) => rows[i]?.[j] ?? 1));
    draw();
    changed(rows);
  };
  draw();
  return h("div", { class: "field wide" }, h("span", {}, `${one.label}, divided by the sum of all`), place);
}

function numbersOf(result) {
  const [titles, ...rows] = result.rows;
  return titles && scrolled("In numbers", null, columns(titles), rows.map((row) =>
    h("tr", {}, row.map((x) => h("td", {}, x)))));
}
