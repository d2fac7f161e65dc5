// Choosing a run from a list.

import { get } from "/web/api.js";
import { errorMessage, h } from "/web/dom.js";

/** The runs that a page shows. */
export async function runsFor(page, signal) {
  return (await get("/api/runs", signal)).filter((one) => one.pages.includes(page));
}

/** Error messages for the runs that the address names and the folder does not have. */
export async function missingRuns(names, signal) {
  const known = (await get("/api/runs", signal)).map((one) => one.run);
  return names.filter((name) => name && !known.includes(name)).map((name) =>
    errorMessage(new Error(`There is no run “${name}” in this folder, so it is not shown.`)));
}

/** A list to choose one of the runs from. */
export function picker(runs, chosen, onchange, label = "Run") {
  const list = h("select", { "aria-label": label, onchange: () => onchange(list.value) }, runs.map((one) =>
    h("option", { value: one.run, selected: one.run === chosen }, runLabel(one))));
  return list;
}

/** A run in a line: its name, its model, its score. */
export function runLabel(run) {
  return run.score == null ? `${run.run} (${run.model})` : `${run.run} (${run.model}, ${scoreLabel(run)})`;
}

export function scoreLabel(run) {
  if (run.score == null) return "";
  return run.unit === "bits per byte" ? `${run.score.toFixed(4)} ${run.unit}` : `${+run.score.toPrecision(4)} ${run.unit}`;
}

/** The hint where there is no run to choose. */
export const noRuns = (what, command) =>
  h("p", {}, `There is no ${what} in this folder yet. Make one: `, h("code", {}, command));
