// Choosing a run from a list.

import { get } from "/web/api.js";
import { h, said } from "/web/dom.js";

/** The runs that do one of the tasks; "" predicts the next token. */
export async function runsFor(tasks, signal) {
  return (await get("/api/runs", signal)).filter((one) => !one.error && tasks.includes(one.task));
}

/** Said where the address names a run that is not in the folder: a list of one paragraph, or of none. */
export async function absent(names, signal) {
  const known = (await get("/api/runs", signal)).map((one) => one.run);
  return names.filter((name) => name && !known.includes(name)).map((name) =>
    said(new Error(`There is no run “${name}” in this folder, so it is not shown.`)));
}

/** A list to choose one of the runs from. */
export function picker(runs, chosen, onchange, label = "Run") {
  const list = h("select", { "aria-label": label, onchange: () => onchange(list.value) }, runs.map((one) =>
    h("option", { value: one.run, selected: one.run === chosen }, told(one))));
  return list;
}

/** A run in a line: its name, its figure. */
export function told(run) {
  return run.figure == null ? `${run.run} (${run.model})` : `${run.run} (${run.model}, ${shortFigure(run)})`;
}

export function shortFigure(run) {
  if (run.figure == null) return "";
  return run.unit === "bits per byte" ? `${run.figure.toFixed(3)} ${run.unit}` : `${+run.figure.toPrecision(4)} ${run.unit}`;
}

/** What to do where there is no run to choose. */
export const nothing = (what, command) =>
  h("p", {}, `There is no ${what} in this folder yet. Make one: `, h("code", {}, command));
