// Choosing a run from a list.

import { get } from "/web/api.js";
import { choice, errorMessage, h } from "/web/dom.js";
import { PAGES } from "/web/pages.js";

/** Begin a page that shows runs, those of the page `of`: its title, and a message for each run that the address names
 * and the folder does not have. Returns the runs, and `chosen(name)`: the one that the address names so, or the first;
 * null where there is no run, which the page then says, with the command that makes one. */
export async function openPage(main, params, signal, { page, of = page, what, command, names = ["run"] }) {
  const all = await get("/api/runs", signal);
  const runs = all.filter((one) => one.pages.includes(of));
  main.append(h("h1", {}, PAGES[page]));
  if (!runs.length) {
    main.append(h("p", {}, `There is no ${what} in this folder yet. Make one: `, h("code", {}, command)));
    return null;
  }
  main.append(...missingRuns(all, names.map((name) => params.get(name))));
  const chosen = (name, otherwise = runs[0].run) =>
    (runs.some((one) => one.run === params.get(name)) ? params.get(name) : otherwise);
  return { runs, chosen };
}

/** Error messages for the names that none of the runs has. */
export const missingRuns = (runs, names) =>
  names.filter((name) => name && !runs.some((one) => one.run === name)).map((name) =>
    errorMessage(new Error(`There is no run “${name}” in this folder, so it is not shown.`)));

/** A list to choose one of the runs from. */
export const picker = (runs, chosen, onchange, label = "Run") =>
  choice(runs.map((one) => [one.run, runLabel(one)]), chosen, onchange, { "aria-label": label });

/** A run in a line: its name, its model, its score. */
export function runLabel(run) {
  return run.score == null ? `${run.run} (${run.model})` : `${run.run} (${run.model}, ${scoreLabel(run)})`;
}

export function scoreLabel(run) {
  if (run.score == null) return "";
  return run.unit === "bits per byte" ? `${run.score.toFixed(4)} ${run.unit}` : `${+run.score.toPrecision(4)} ${run.unit}`;
}
