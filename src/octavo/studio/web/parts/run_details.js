// The details of one run, or of two side by side: settings, results, and their training curves in one chart.

import { get } from "/web/api.js";
import { choice, field, h, latest, replace } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { RunCurve, kindsOf } from "/web/parts/run_curve.js";
import { plain } from "/web/parts/numbers.js";

export const AXES = { step: "step", seconds: "seconds of training", tokens: "tokens", examples: "examples" };
const POLL_MS = 1500; // between two readings of a curve that grows

/** The controls of a chart of curves: what its axes show, and whether they are logarithmic. */
export function axisControls(curves, view, onchange) {
  const box = (name, label) => {
    const input = h("input", {
      type: "checkbox", checked: view[name], onchange: () => onchange({ ...view, [name]: input.checked }),
    });
    return h("label", { class: "ticked" }, input, ` ${label}`);
  };
  const axis = choice(Object.entries(AXES), view.x, (x) => onchange({ ...view, x }), { "aria-label": "x axis" });
  const kinds = kindsOf(curves);
  const measure = choice(kinds.map(({ y }) => [y]), view.y, (y) => onchange({ ...view, y }), { "aria-label": "y axis" });
  return h("div", { class: "bar" }, field("x axis", axis), kinds.length > 1 && field("y axis", measure),
    box("logX", "logarithmic x"), box("logY", "logarithmic y"));
}

/** The content of a chart of these curves. */
export function chartOf(curves, view) {
  const kinds = kindsOf(curves);
  const kind = kinds.find(({ y }) => y === view.y) ?? kinds[0];
  const two = curves.length > 1;
  const series = curves.flatMap((one, i) =>
    one.lines(view.x, kind, two ? [i, i] : [0, 1], two ? one.run : ""));
  const references = kind.training !== "bits_per_byte" ? [] : curves.filter((one) => one.result != null)
    .map((one) => ({ name: two ? `${one.run}, result` : "result", y: one.result,
      colour: two ? curves.indexOf(one) : null }));
  return { series, references, x: AXES[view.x], y: kind.y, logX: view.logX, logY: view.logY };
}

/** Returns a function that shows the details of runs in a place. `on.actions(run)` makes the controls of a single run;
 * curves are updated while `on.isTraining(run)`. */
export function runDetails(place, outer, on) {
  const ask = latest(place, outer);
  return (runs, view, onview) => ask(async (signal) => {
    if (!runs.length) return void replace(place, []);
    const curves = runs.map((run) => new RunCurve(run));
    const query = new URLSearchParams(runs.map((run) => ["run", run]));
    const [compared] = await Promise.all([get(`/api/compare?${query}`, signal), ...curves.map((one) => one.read(signal))]);
    const two = runs.length > 1;
    const shared = compared.settings.filter((one) => one.values.every((value) => value != null));
    const own = compared.settings.filter((one) => !shared.includes(one)); // the other model does not have them
    const drawing = drawCurves(curves, view, onview, () => runs.some(on.isTraining));
    replace(place, [
      h("h2", {}, two ? `${runs[0]} and ${runs[1]}` : runs[0]), drawing.elements, !two && on.actions(runs[0]),
      h("div", { class: "side" },
        h("section", {}, h("h3", {}, "Results"), table(compared.results, runs, "It has not been evaluated.")),
        two ? h("section", {}, h("h3", {}, "Settings that differ"), table(shared, runs, "None that both of them have."),
          h("p", { class: "quiet" }, `${compared.same_settings} other settings are the same.`),
          own.length > 0 && h("details", {}, h("summary", {}, `${own.length} settings that only one of them has`),
            table(own, runs)))
          : h("details", {}, h("summary", {}, "All settings"), table(compared.settings, runs, "It has none."))),
    ]);
    drawing.draw(); // now that it has a width
    follow(curves, drawing, () => runs.some(on.isTraining), signal);
  });
}

/** Keep the curves up to date while a run is being trained. */
async function follow(curves, drawing, isTraining, signal) {
  while (isTraining()) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (signal.aborted) return;
    try {
      const changed = await Promise.all(curves.map((one) => one.read(signal)));
      if (changed.includes(true)) drawing.draw();
    } catch {
      return; // the run is gone, or the studio: the list says so
    }
  }
}

function drawCurves(curves, view, onview, isTraining) {
  if (curves.every((one) => one.empty) && !isTraining()) {
    const note = "It was not trained step by step, so there is no training curve.";
    return { elements: h("p", { class: "quiet" }, note), draw: () => {} };
  }
  const chart = new Chart(`Training of ${curves.map((one) => one.run).join(" and ")}`);
  let now = view;
  const controls = h("div", {});
  const draw = () => chart.draw(chartOf(curves, now));
  const change = (next) => {
    now = next;
    onview(next);
    draw();
    const place = [...controls.querySelectorAll("select, input")].indexOf(document.activeElement);
    replace(controls, axisControls(curves, now, change));
    if (place >= 0) controls.querySelectorAll("select, input")[place].focus();
  };
  replace(controls, axisControls(curves, now, change));
  return { elements: [chart.element, controls, curves.map((one) => events(one, curves.length > 1))], draw };
}

function events(curve, named) {
  if (!curve.events.length) return null;
  const list = curve.events.slice(0, 5).map(([step, what]) => `step ${plain(step)}: ${what}`).join("; ");
  return h("p", { class: "quiet" }, `Events during the training${named ? ` of ${curve.run}` : ""}: ${list}.`);
}

function table(lines, runs, nothing) {
  if (!lines.length) return h("p", { class: "quiet" }, nothing);
  const shown = (value) => (value == null ? "" : typeof value === "number" ? plain(value) : String(value));
  return h("div", { class: "scroll" }, h("table", {},
    runs.length > 1 && h("thead", {}, h("tr", {}, h("td", {}), runs.map((run) => h("th", { scope: "col" }, run)))),
    h("tbody", {}, lines.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name),
      one.values.map((value) => h("td", {}, shown(value))))))));
}
