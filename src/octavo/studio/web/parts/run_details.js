// One run looked at closely, or two side by side: settings, figures, and their curves in one chart.

import { get } from "/web/api.js";
import { field, h, latest, replace } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { Curve, kindOf } from "/web/parts/run_curve.js";
import { plain } from "/web/parts/numbers.js";

export const AXES = { step: "step", seconds: "seconds of training", tokens: "tokens read" };
const COLOURS = [["a", "b"], ["c", "d"]];
const POLL = 1500; // milliseconds between looks at a curve that grows

/** Which axis, and whether axes are logarithmic: what the chart's controls change. */
export function axisControls(view, onchange) {
  const box = (name, label) => {
    const input = h("input", {
      type: "checkbox", checked: view[name], onchange: () => onchange({ ...view, [name]: input.checked }),
    });
    return h("label", { class: "ticked" }, input, ` ${label}`);
  };
  const axis = h("select", { "aria-label": "Across", onchange: () => onchange({ ...view, x: axis.value }) },
    Object.entries(AXES).map(([name, told]) => h("option", { value: name, selected: name === view.x }, told)));
  return h("div", { class: "bar" }, field("Across", axis), box("logX", "logarithmic across"),
    box("logY", "logarithmic upwards"));
}

/** What a chart of these curves is asked to draw. */
export function drawn(curves, view) {
  const kind = kindOf(curves);
  const two = curves.length > 1;
  const series = curves.flatMap((one, i) =>
    one.lines(view.x, kind, two ? [COLOURS[i][0], COLOURS[i][0]] : COLOURS[0], two ? one.run : ""));
  const references = kind.learnt !== "bits_per_byte" ? [] : curves.filter((one) => one.result != null)
    .map((one) => ({ name: two ? `${one.run}, the result` : "the result", y: one.result,
      colour: two ? COLOURS[curves.indexOf(one)][0] : "q" }));
  return { series, references, x: AXES[view.x], y: kind.y, logX: view.logX, logY: view.logY };
}

/** Show the chosen runs in a place; what it gives back shows others. `on.actions(run)` makes what stands below one run;
 * the curves of those that are `on.growing(run)` are read on. */
export function closer(place, outer, on) {
  const ask = latest(place, outer);
  return (runs, view, onview) => ask(async (signal) => {
    if (!runs.length) return void replace(place, []);
    const curves = runs.map((run) => new Curve(run));
    const query = new URLSearchParams(runs.map((run) => ["run", run]));
    const [told] = await Promise.all([get(`/api/compare?${query}`, signal), ...curves.map((one) => one.read(signal))]);
    const two = runs.length > 1;
    const shared = told.settings.filter((one) => one.values.every((value) => value != null));
    const own = told.settings.filter((one) => !shared.includes(one)); // the other model knows nothing of them
    const drawing = curvesOf(curves, view, onview, () => runs.some(on.growing));
    replace(place, [
      h("h2", {}, two ? `${runs[0]} and ${runs[1]}` : runs[0]), drawing.elements, !two && on.actions(runs[0]),
      h("div", { class: "side" },
        h("section", {}, h("h3", {}, "Figures"), table(told.figures, runs, "It has not been measured.")),
        two ? h("section", {}, h("h3", {}, "Settings that differ"), table(shared, runs, "None that both of them have."),
          h("p", { class: "quiet" }, `${told.same} other settings are the same.`),
          own.length > 0 && h("details", {}, h("summary", {}, `${own.length} settings that only one of them has`),
            table(own, runs)))
          : h("details", {}, h("summary", {}, "All settings"), table(told.settings, runs, "It has none."))),
    ]);
    drawing.draw(); // now that it has a width
    readOn(curves, drawing, () => runs.some(on.growing), signal);
  });
}

/** Draw what is written as long as somebody trains. */
async function readOn(curves, drawing, growing, signal) {
  while (growing()) {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) return;
    try {
      const news = await Promise.all(curves.map((one) => one.read(signal)));
      if (news.includes(true)) drawing.draw();
    } catch {
      return; // the run is gone, or the studio: the list tells
    }
  }
}

function curvesOf(curves, view, onview, growing) {
  if (curves.every((one) => one.empty) && !growing()) {
    const told = "Nothing was learnt step by step here, so there is no curve.";
    return { elements: h("p", { class: "quiet" }, told), draw: () => {} };
  }
  const chart = new Chart(`Training of ${curves.map((one) => one.run).join(" and ")}`);
  let now = view;
  const controls = h("div", {});
  const draw = () => chart.draw(drawn(curves, now));
  const change = (next) => {
    now = next;
    onview(next);
    draw();
    const place = [...controls.querySelectorAll("select, input")].indexOf(document.activeElement);
    replace(controls, axisControls(now, change));
    if (place >= 0) controls.querySelectorAll("select, input")[place].focus();
  };
  replace(controls, axisControls(now, change));
  return { elements: [chart.element, controls, curves.map((one) => events(one, curves.length > 1))], draw };
}

function events(curve, named) {
  if (!curve.events.length) return null;
  const told = curve.events.slice(0, 5).map(([step, what]) => `step ${plain(step)}: ${what}`).join("; ");
  return h("p", { class: "quiet" }, `What went wrong on the way${named ? ` of ${curve.run}` : ""}: ${told}.`);
}

function table(lines, runs, nothing) {
  if (!lines.length) return h("p", { class: "quiet" }, nothing);
  const shown = (value) => (value == null ? "" : typeof value === "number" ? plain(value) : String(value));
  return h("div", { class: "scroll" }, h("table", {},
    runs.length > 1 && h("thead", {}, h("tr", {}, h("td", {}), runs.map((run) => h("th", { scope: "col" }, run)))),
    h("tbody", {}, lines.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name),
      one.values.map((value) => h("td", {}, shown(value))))))));
}
