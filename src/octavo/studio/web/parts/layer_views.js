// The logit lens, gradient flow, and what a BERT predicts for its masks.

import { post } from "/web/api.js";
import { choice, field, h, replace } from "/web/dom.js";
import { heat } from "/web/parts/colours.js";
import { Chart } from "/web/parts/chart.js";
import { columns, plainTable, scrolled } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const ROWS = 40; // tokens of the table that are shown at once
const LETTERS = 10;

const short = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

/** The logit lens. */
export async function layersView(place, page, signal) {
  const { run, text, view } = page.settings;
  const data = await post("/api/inspect/layers", { run, text, view }, signal);
  const stage = h("div", {});
  const last = Math.max(0, Math.floor((data.tokens.length - 1) / ROWS) * ROWS);
  const step = (name, by) => h("button", { type: "button", onclick: () => show(from() + by) }, name);
  const from = () => Math.min(last, Math.max(0, Math.floor((Number(page.settings.from) || 0) / ROWS) * ROWS));
  const [earlier, later] = [step(`← ${ROWS} earlier`, -ROWS), step(`${ROWS} later →`, ROWS)];

  function show(first) {
    page.remember({ from: Math.min(last, Math.max(0, first)) || "" });
    const at = from();
    earlier.disabled = at === 0;
    later.disabled = at === last;
    replace(stage, scrolled("What each depth expected", "heat", columns(["token", ...data.layers.map((one) => one.name)]),
      data.tokens.slice(at, at + ROWS).map((token, i) => row(data, token, at + i, cell.value))));
  }

  const cell = choice([["", "the likeliest token"], ["bits", "what the token that came costs"]], page.settings.cell ?? "",
    (value) => {
      page.remember({ cell: value });
      show(from());
    });
  const facts = plainTable("Bits at each depth", ["read out after", "bits a token", "right"],
    data.layers.map((one) => [one.name, one.bits == null ? "∞" : one.bits.toFixed(3), percent(one.right)]));
  replace(place, [
    h("p", { class: "quiet" }, "What would the model predict if it were read out after each layer? (This is the logit "
      + "lens.) The last is its own prediction. Below, each row is a token, and in it what each depth expected in its "
      + "place, shaded by its probability; underlined where that token came."),
    data.truncated && h("p", { class: "quiet" }, `Only the first ${data.tokens.length} tokens are read.`),
    facts, h("div", { class: "bar" },
      field("In each cell", cell), data.tokens.length > ROWS && [earlier, later]), stage,
  ]);
  show(from());
}

function row(data, token, n, cell) {
  return h("tr", {}, h("th", { class: "mono", scope: "row" }, short(token)), data.layers.map((one) => {
    const cost = one.costs[n] == null ? "∞" : `${one.costs[n].toFixed(2)} bits`;
    const share = cell === "bits" ? (one.costs[n] == null ? 0 : 2 ** -one.costs[n]) : one.ps[n];
    const style = { background: heat(share) };
    if (cell === "bits") return h("td", { style, class: "r" }, cost);
    const title = `${one.name} expected ${one.tops[n]}, ${percent(one.ps[n])}; ${token} costs ${cost}`;
    return h("td", { style, title },
      h("span", { class: one.rights[n] ? "mono right" : "mono" }, short(one.tops[n])), " ",
      h("small", {}, percent(one.ps[n])));
  }));
}

/** How far back the loss reaches. */
export async function curveView(place, page, signal) {
  const { settings, remember } = page;
  const asked = { run: settings.run, text: settings.text, view: settings.view, ...(settings.back ? { back: Number(settings.back) } : {}) };
  const data = await post("/api/inspect/curve", asked, signal);
  const points = (one) => one.shares.map((share, t) => [t, share > 0 ? share : null]);
  const series = [data.whole, ...data.theory].map((one) => ({ name: one.name, points: points(one) }));
  const back = h("input", { type: "number", min: 1, max: 400, value: data.back, onchange: () => {
    remember({ back: back.value });
    page.again();
  } });
  const steps = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256].filter((t) => t < data.back).concat(data.back);
  const rows = [data.whole, ...data.parts].map((one) => [one.name, one.summary,
    ...steps.map((t) => (one.shares[t] == null ? "–" : +one.shares[t].toPrecision(3)))]);
  const deep = data.layers.length > 0;
  const chart = new Chart("Gradient flow");
  replace(place, [
    h("p", {}, "How much would the loss of a prediction change if "
      + (deep ? "the embedding of the token some steps before it" : "the state some steps before it")
      + " had been a little different? That is a gradient's norm, here as a share of the one at 0 steps back. Where it "
      + "vanishes, training cannot learn a connection over that distance."),
    h("div", { class: "bar" }, field("Steps back", back)),
    chart.element,
    h("p", { class: "quiet" }, "× 0.9, × 1 and × 1.1 are theory: linear networks with an orthogonal matrix times that. "
      + `Means over ${data.losses} predictions in ${data.tokens} tokens${data.truncated ? ", the first of the text" : ""}.`),
    plainTable("The gradient in numbers", ["by", "the gradient", ...steps.map((t) => `t = ${t}`)], rows, (i) => i > 1),
    deep && [h("h2", {}, "By depth"), plainTable("The gradient at each depth", ["stream after", "norm"],
      data.layers.map((norm, n) => [n ? `layer ${n}` : "embedding", +norm.toPrecision(3)]))],
  ]);
  chart.draw({ series, x: "steps back", y: "gradient norm, relative", logY: true });
}

/** What is expected behind each [MASK]. */
export async function maskedView(place, page, signal) {
  const { settings } = page;
  if (!settings.text.includes("[MASK]")) {
    replace(place, h("p", {}, "Write [MASK] in the text where a word is missing, for instance: ",
      h("button", { type: "button", onclick: () => page.write(settings.text.replace(/\p{L}+/u, "[MASK]")) },
        "hide the first word")));
    return;
  }
  const data = await post("/api/inspect/masked", { run: settings.run, text: settings.text }, signal);
  replace(place, [
    h("p", {}, "Filled in: ", h("b", {}, data.filled)),
    data.places.map((guesses, n) => [
      data.places.length > 1 && h("h3", {}, `[MASK] ${n + 1}`),
      plainTable(`Guesses for [MASK] ${n + 1}`, ["token", "probability", ""], guesses.map((one) => [
        h("span", { class: "mono" }, one.token), percent(one.probability),
        h("span", { class: "giving", "aria-hidden": "true" }, h("span", { style: { width: `${100 * one.probability}%` } })),
      ]), (i) => i === 1),
    ]),
  ]);
}
