// The grader: a file of answers against the exercises.

import { get, post } from "/web/api.js";
import { choice, errorMessage, field, h, latest, replace } from "/web/dom.js";
import { columns, scrolled } from "/web/parts/table.js";

const MAX_FILE_BYTES = 1 << 17;
const WORDS = { "right": "right", "only if": "right only if", "wrong": "wrong", "refused": "refused",
  "missing": "missing", "not run": "not graded" };
const SIDES = { "right": "good", "only if": "half", "wrong": "bad", "refused": "bad" };

export async function showGrader(place, params, signal) {
  const every = await get("/api/exercises", signal);
  const grades = h("div", { "aria-live": "polite" });
  const grading = latest(grades, signal);
  const text = h("textarea", { maxlength: MAX_FILE_BYTES, spellcheck: "false", rows: 12,
    placeholder: "[softmax-range]\nsum = 1" });
  const file = h("input", { type: "file", accept: ".toml,text/plain", onchange: async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > MAX_FILE_BYTES) replace(grades, errorMessage(new Error("a file of answers may have 128 kB; leave out some")));
    else text.value = await chosen.text();
  } });
  const of = choice([["", "all exercises"], ...every.map((one) => [one.id, one.title])], "", () => {},
    { "aria-label": "Exercise" });
  const empty = (use) => grading(async (still) => {
    replace(grades, []);
    use((await get(`/api/template${of.value && `?name=${encodeURIComponent(of.value)}`}`, still)).text);
  });
  const grade = () => grading(async (still) => {
    replace(grades, h("p", { class: "quiet", role: "status" }, "Grading …"));
    replace(grades, graded(await post("/api/grade", { answers: text.value }, still)));
  });
  replace(place, [
    h("p", {}, "A file of answers has a table for each exercise and a key for each claim. Formulas may be written in "
      + "any way; where one is wrong, you are shown for which values."),
    h("p", { class: "quiet" }, "Answers that are a Python file are not run here, and not graded; for those: ",
      h("code", {}, "octavo exercises grade answers.toml"), ". Nothing is stored."),
    h("div", { class: "bar" }, field("Empty answers to", of),
      h("button", { onclick: () => empty((found) => { text.value = found; }) }, "Put them below"),
      h("button", { onclick: () => empty(download) }, "Download them")),
    h("label", { class: "field wide" }, h("span", {}, "Answers (TOML)"), text),
    h("div", { class: "bar" }, field("or from a file", file), h("button", { class: "main", onclick: grade }, "Grade")),
    grades]);
}

function download(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
  h("a", { href: address, download: "answers.toml" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000); // when the browser has begun to save it
}

function graded(found) {
  if (found.problem) return errorMessage(new Error(`The answers cannot be read: ${found.problem}`));
  if (!found.rows.length) return h("p", {}, "There is no answer to any exercise in it.");
  const left = found.rows.filter((row) => row.outcome === "not run").length;
  return [h("p", { class: "verdict" }, h("b", {}, `${+found.points.toFixed(2)} of ${+found.of.toFixed(2)} points`),
    left ? `; ${left} ${left === 1 ? "answer is a Python file" : "answers are Python files"}, not graded` : ""),
  scrolled("Grades", "stack", columns(["claim", "result", "points", "your answer", "why"]), found.rows.map(gradedRow))];
}

function gradedRow(row) {
  return h("tr", {}, h("th", { scope: "row" }, `${row.exercise}${row.part && `.${row.part}`}`),
    h("td", { class: SIDES[row.outcome] ?? "quiet" }, WORDS[row.outcome]),
    h("td", {}, row.of ? `${row.points} of ${row.of}` : ""), h("td", { class: "mono" }, row.answer),
    h("td", { class: "note" }, row.why, row.reason && h("small", {}, ` You said: ${row.reason}`)));
}
