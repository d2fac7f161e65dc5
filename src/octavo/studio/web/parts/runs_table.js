// The runs as a table: sorted by any column, filtered by words, one or two of them chosen.

import { h, replace } from "/web/dom.js";
import { addressOf } from "/web/main.js";
import { PAGES } from "/web/pages.js";
import { bytes, duration, plain, short } from "/web/parts/numbers.js";
import { scoreLabel } from "/web/parts/run_picker.js";

const when = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// `of` is what a column is sorted by; a list is compared item by item.
export const COLUMNS = [
  { key: "run", title: "Run", of: (one) => one.run.toLowerCase() },
  { key: "model", title: "Model", of: (one) => `${one.model} ${one.detail}` },
  { key: "corpus", title: "Trained on", of: (one) => one.corpus || null },
  { key: "score", title: "Score", right: true, of: ranked, hint: "on held-out text or examples; best first" },
  { key: "seconds", title: "Training", right: true, of: (one) => one.seconds, hint: "duration of training" },
  {
    key: "parameters", title: "Parameters", right: true, of: (one) => one.parameters,
    hint: "what training set: a network's weights, an n-gram model's n-grams; and the file's size",
  },
  {
    key: "flops", title: "FLOPs", right: true, of: (one) => one.flops,
    hint: "floating-point operations of one token after a full context; reading counts takes none",
  },
  { key: "modified", title: "Modified", right: true, of: (one) => one.modified, hint: "when the run was last written" },
];

/** Runs of one unit and one text stand together, bits per byte first, the best before the others. */
function ranked(one) {
  if (one.score == null) return null;
  return [one.unit === "bits per byte" ? 0 : 1, one.unit, one.text, one.lower_is_better ? one.score : -one.score];
}

/** Sorted by score, each text has its heading: scores of different texts do not rank. */
function grouped(runs, sort, rowOf) {
  const byText = sort.replace(/^-/, "") === "score" && new Set(runs.map((one) => one.text)).size > 1;
  return runs.flatMap((one, i) => {
    const same = !byText || (i > 0 && runs[i - 1].text === one.text && runs[i - 1].unit === one.unit);
    const heading = h("tr", { class: "text" },
      h("th", { scope: "rowgroup", colspan: COLUMNS.length + 1 }, one.text || "not measured"));
    return same ? [rowOf(one)] : [heading, rowOf(one)];
  });
}

function compared(a, b) {
  if (Array.isArray(a)) {
    const place = a.findIndex((item, i) => item !== b[i]);
    return place < 0 ? 0 : compared(a[place], b[place]);
  }
  return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
}

/** The runs in order; `sort` is a column's key, with a minus the other way round. What is missing is last. */
export function sorted(runs, sort) {
  const back = sort.startsWith("-");
  const column = COLUMNS.find((one) => one.key === sort.replace(/^-/, "")) ?? COLUMNS[3];
  return runs.map((one) => [column.of(one), one]).sort(([a, x], [b, y]) => {
    if (a == null || b == null) return (a == null) - (b == null) || compared(x.run, y.run);
    return (back ? -1 : 1) * compared(a, b) || compared(x.run, y.run);
  }).map(([, one]) => one);
}

/** Runs in which every word occurs somewhere. */
export function filtered(runs, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((one) => {
    const text = [one.run, one.model, one.detail, one.corpus, one.unit, one.task, one.state].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

/** The table; `on` has sort(key), choose(run) and resume(run). */
export function runsTable(runs, view, on) {
  const pick = h("th", { class: "pick", scope: "col" }, h("span", { class: "unseen" }, "Select"));
  const head = h("thead", {}, h("tr", {}, pick, COLUMNS.map((column) => heading(column, view.sort, on.sort))));
  return h("table", { class: "runs" }, h("caption", { class: "unseen" }, "Runs"), head,
    h("tbody", {}, grouped(runs, view.sort, (one) => row(one, view.chosen.includes(one.run), on))));
}

function heading(column, sort, onsort) {
  const mine = sort.replace(/^-/, "") === column.key;
  const way = !mine ? null : sort.startsWith("-") ? "descending" : "ascending";
  return h("th", { scope: "col", "aria-sort": way, class: column.right ? "r" : null },
    h("button", {
      class: "sort", type: "button", title: column.hint, "data-key": column.key,
      onclick: () => onsort(mine && way === "ascending" ? `-${column.key}` : column.key),
    }, column.title, h("span", { "aria-hidden": "true" }, way === "ascending" ? " ▲" : way ? " ▼" : "")));
}

function row(one, chosen, on) {
  const cell = (label, right, ...inside) => h("td", { class: right ? "r" : null, "data-label": label }, inside);
  if (one.error) {
    return h("tr", { "data-run": one.run }, h("td", { class: "pick" }),
      h("th", { scope: "row" }, one.run), h("td", { colspan: COLUMNS.length - 1, class: "wrong" }, one.error));
  }
  return h("tr", { "data-run": one.run, class: chosen ? "chosen" : null },
    h("td", { class: "pick" }, h("input", {
      type: "checkbox", checked: chosen, "aria-label": `Select ${one.run}`, onchange: () => on.choose(one.run),
    })),
    h("th", { scope: "row" }, one.run, state(one, on), links(one)),
    cell("Model", false, one.model, one.detail && h("small", {}, one.detail)),
    cell("Trained on", false, one.corpus),
    cell("Score", true, one.score == null ? "" : score(one), one.label && h("small", {}, one.label)),
    cell("Training", true, one.seconds == null ? "" : duration(one.seconds)),
    cell("Parameters", true, one.parameters == null ? "" : plain(one.parameters),
      one.bytes && h("small", {}, bytes(one.bytes))),
    cell("FLOPs", true, one.flops == null ? "" : short(one.flops)),
    cell("Modified", true, one.modified == null ? "" : h("small", {}, when.format(1000 * one.modified))));
}

function score(one) {
  const [value, ...unit] = scoreLabel(one).split(" ");
  return [h("b", {}, value), " ", h("small", {}, unit.join(" "))];
}

function state(one, on) {
  if (one.state === "training") return h("small", { class: "good" }, "being trained");
  if (one.state !== "stopped") return null;
  if (!one.resumable) return h("small", {}, "stopped; resume with ", h("code", {}, one.resume_command));
  return h("small", {}, "stopped ", h("button", {
    type: "button", "aria-label": `Resume ${one.run}`, onclick: () => on.resume(one.run),
  }, "Resume"));
}

function links(one) {
  const report = `/api/report?${new URLSearchParams({ run: one.run })}`;
  return h("span", { class: "links" },
    one.pages.map((page) => h("a", {
      href: addressOf(page, { run: one.run }), "aria-label": `${PAGES[page]} ${one.run}`,
    }, PAGES[page])),
    one.has_report && h("a", { href: report, target: "_blank", rel: "noopener", "aria-label": `Report of ${one.run}` },
      "Report"));
}

/** Put the table in place of the old one; the focus stays where it was. */
export function put(place, table) {
  const at = document.activeElement;
  const [key, run] = [at?.dataset?.key, at?.closest?.("tr")?.dataset?.run];
  const inside = place.contains(at);
  replace(place, table);
  if (!inside) return;
  const again = key ? `[data-key="${key}"]` : run ? `tr[data-run="${CSS.escape(run)}"] ${at.localName}` : null;
  if (again) place.querySelector(again)?.focus();
}
