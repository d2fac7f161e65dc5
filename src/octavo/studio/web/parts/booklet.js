// The booklet: exercises by topic; one is open, its answer is folded, its evidence is computed on demand.

import { get, post } from "/web/api.js";
import { h, latest, replace } from "/web/dom.js";
import { addressOf, remember } from "/web/main.js";
import { elements } from "/web/parts/html_tree.js";
import { columns, scrolled } from "/web/parts/table.js";

export async function showBooklet(place, params, signal) {
  const every = await get("/api/exercises", signal);
  const list = h("nav", { class: "topics", "aria-label": "Exercises" });
  const one = h("div", { class: "booklet", "aria-live": "polite" });
  const wide = matchMedia("(min-width: 48rem)").matches;
  const contents = h("details", { class: "contents", open: wide }, h("summary", {}, "All exercises"), list);
  const opening = latest(one, signal);
  const claims = every.reduce((sum, row) => sum + row.claims, 0);
  replace(place, [h("p", {}, `${every.length} exercises with ${claims} claims, each with evidence that is computed. `
    + "Think first; the answers unfold."), h("div", { class: "book" }, contents, one)]);
  const open = (id) => {
    remember("exercises", { id });
    for (const link of list.querySelectorAll("a")) {
      link.toggleAttribute("aria-current", link.dataset.id === id);
    }
    opening(async (still) => {
      replace(one, exercise(await get(`/api/exercises/${encodeURIComponent(id)}`, still), still));
    });
  };
  const chosen = every.find((row) => row.id === params.get("id")) ?? every[0];
  for (const topic of new Set(every.map((row) => row.topic))) {
    const rows = every.filter((row) => row.topic === topic);
    const links = rows.map((row) => h("li", {}, h("a", {
      href: addressOf("exercises", { id: row.id }), "data-id": row.id, onclick: (event) => {
        event.preventDefault();
        if (!wide) contents.open = false;
        open(row.id);
      } }, row.title)));
    list.append(h("details", { open: topic === chosen.topic }, h("summary", {}, topic), h("ul", {}, links)));
  }
  open(chosen.id);
}

function exercise(found, signal) {
  const body = elements(found.body);
  const article = body.find((node) => node.nodeType === Node.ELEMENT_NODE);
  const answer = article.querySelector("details");
  if (found.figure) answer.addEventListener("toggle", () => drawFigure(found, answer, signal), { once: true });
  return [article,
    found.play && h("p", {}, h("a", { href: addressOf("exercises", { view: "play", name: found.play }) },
      "Try it with numbers of your own")),
    evidence(found, signal)];
}

/** The figure is computed when the answer is unfolded: it may take seconds. */
async function drawFigure(found, answer, signal) {
  const place = h("div", {}, h("p", { class: "quiet", role: "status" }, "Computing the figure …"));
  answer.querySelector(":scope > ol").before(place);
  try {
    replace(place, elements((await get(`/api/exercises/${encodeURIComponent(found.id)}/figure`, signal)).figure));
  } catch (error) {
    if (!signal.aborted) replace(place, h("p", { class: "error", role: "alert" }, error.message));
  }
}

/** A button that computes the evidence, claim by claim, and a table of the results. */
function evidence(found, outer) {
  const place = h("div", { "aria-live": "polite" });
  const checking = latest(place, outer);
  let stop = new AbortController();
  const check = h("button", { class: "main", onclick: () => {
    stop = new AbortController();
    checking(async (signal) => {
      const both = AbortSignal.any([signal, stop.signal]);
      await run(found, place, both, () => stop.abort());
    });
  } }, `Check its ${found.parts.length === 1 ? "claim" : `${found.parts.length} claims`}`);
  return h("section", { class: "evidence" }, h("h2", {}, "Evidence"),
    h("p", { class: "quiet" }, "Each claim is checked against an independent computation, made now."), check, place);
}

async function run(found, place, signal, stop) {
  const rows = h("tbody", {}), status = h("p", { role: "status", class: "quiet" });
  const button = h("button", { onclick: stop }, "Stop");
  const titles = columns(["claim", "", "evidence", "tolerance", "result"]);
  replace(place, [scrolled("Evidence", "stack", titles, rows), status, button]);
  let held = 0;
  try {
    for (const [n, part] of found.parts.entries()) {
      status.textContent = `Checking ${part.id}, ${n + 1} of ${found.parts.length} …`;
      const result = await post(`/api/exercises/${encodeURIComponent(found.id)}/check`, { part: part.id }, signal);
      held += result.holds;
      rows.append(h("tr", {}, h("th", { scope: "row" }, result.id),
        h("td", { class: result.holds ? "good" : result.skipped ? "" : "bad" },
          result.holds ? "holds" : result.skipped ? "skipped" : "fails"),
        h("td", {}, `${result.evidence}, ${result.seconds < 0.01 ? "under 0.01" : result.seconds.toFixed(2)} s`),
        h("td", {}, result.tolerance),
        h("td", { class: "note" }, result.problem || result.note || result.found)));
    }
    status.textContent = `${held} of ${found.parts.length} claims hold.`;
  } catch (error) {
    if (!signal.aborted) throw error;
    status.textContent = "Stopped.";
  } finally {
    button.remove();
  }
}
