// Gates and states over the tokens: a strip for each, then every unit of one of them, then one unit.

import { post } from "/web/api.js";
import { choice, field, h, latest, replace, svg } from "/web/dom.js";
import { matrix } from "/web/parts/matrix.js";
import { plainTable } from "/web/parts/table.js";
import { SHARE, tables, valueOf } from "/web/parts/byte_tables.js";

const HIGH = 90; // of a unit's drawing

/** The tab of a recurrent network. */
export async function rowsView(place, page, signal) {
  const { settings, remember } = page;
  const asked = { run: settings.run, text: settings.text, view: settings.view };
  const data = await post("/api/inspect/rows", asked, signal);
  const names = data.rows.map((one) => `${one.row} ${one.layer}`);
  const stage = h("div", {});
  const draw = latest(stage, signal);
  let chosen = Math.max(0, names.indexOf(settings.gate ?? ""));

  const strips = matrix({
    rows: names, columns: data.tokens, square: false, label: "Gates and states over the tokens", signal,
    at: settings.strip ?? "", onmove: (strip) => remember({ strip }),
    tell: (row, column) => {
      const one = data.rows[row];
      const mean = one.mean[column].toFixed(2);
      return `${one.row} of layer ${one.layer} at “${data.tokens[column]}” (${column}): mean ${mean}`;
    },
    onpick: (row) => pick(row),
  });
  const list = choice(data.rows.map((one, n) => [n, `${one.row}, layer ${one.layer}`]), chosen, (n) => pick(Number(n)));
  const order = choice([["", "those that vary most first"], ["number", "by number"]], settings.order ?? "", (value) => {
    remember({ order: value });
    draw(showUnits);
  });

  function pick(n) {
    chosen = n;
    list.value = n;
    remember({ gate: n ? names[n] : "", unit: "" });
    draw(showUnits);
  }

  async function showUnits(ended) {
    const one = data.rows[chosen];
    const found = await tables("/api/inspect/units", { ...asked, row: one.row, layer: one.layer }, ended);
    const units = settings.order === "number" ? one.busiest.map((_, n) => n) : one.busiest;
    const sorted = new Uint8Array(found.rows * found.columns);
    units.forEach((unit, row) => sorted.set(found.table(0).subarray(unit * found.columns, (unit + 1) * found.columns),
      row * found.columns));
    const single = h("div", {});
    const show = (unit) => {
      const values = Array.from(found.table(0).subarray(unit * found.columns, (unit + 1) * found.columns),
        (byte) => valueOf(found.kind, byte));
      replace(single, unitFigure(unit, values, data.tokens, one.signed));
    };
    const drawn = matrix({
      rows: units.map((unit) => `unit ${unit}`), columns: data.tokens, square: false, signal: ended,
      label: `Units of ${one.row}, layer ${one.layer}`, at: settings.at ?? "", onmove: (at) => remember({ at }),
      tell: (row, column, value) => `unit ${units[row]} at “${data.tokens[column]}” (${column}): ${value.toFixed(2)}`,
      onpick: (row) => {
        remember({ unit: units[row] });
        show(units[row]);
      },
    });
    const scale = one.signed ? "orange −1, paper 0, blue 1" : "paper 0, shut; blue 1, open";
    replace(stage, [
      h("p", { class: "quiet" }, `${one.units} units: ${scale}${one.squashed ? ", after tanh" : ""}. `
        + "Click a row, or press Enter on it, for one unit."), drawn.element, single,
    ]);
    await drawn.show(sorted, found.kind);
    if ((settings.unit ?? "") !== "" && Number(settings.unit) < one.units) show(Number(settings.unit));
  }

  replace(place, [
    data.truncated && h("p", { class: "quiet" }, `Only the first ${data.tokens.length - 1} tokens are read.`),
    h("p", { class: "quiet" }, "Each column is a token as it is read, each row the mean over a layer's units; of "
      + "values with a sign, of their size."),
    strips.element, gateTable(data.rows, (n) => pick(n)),
    h("h2", {}, "Unit by unit"), h("div", { class: "bar" }, field("Gate", list), field("Order", order)), stage,
  ]);
  const bytes = Uint8Array.from(data.rows.flatMap((one) => one.strength.map((value) => Math.round(255 * value))));
  await Promise.all([strips.show(bytes, SHARE), draw(showUnits)]);
}

function gateTable(gates, pick) {
  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const share = (part) => `${(100 * part).toFixed(1)} %`;
  const rows = gates.map((one, n) => [
    h("button", { type: "button", class: "link", onclick: () => pick(n) }, `${one.row}, layer ${one.layer}`),
    mean(one.mean).toFixed(2), share(one.low), share(one.high), h("span", { class: "note" }, one.meaning)]);
  return h("div", {}, plainTable("Gates, averaged", ["gate", "mean", "low", "high", "what it says"], rows,
    (i) => i > 0 && i < 4),
  h("p", { class: "quiet small" }, "low and high: the share of units below 0.1 and above 0.9, which hardly learn; of "
    + "values with a sign, below −0.9 and above 0.9."));
}

/** One unit over the text, as a line. */
function unitFigure(unit, values, tokens, signed) {
  const wide = 720;
  const x = (n) => (values.length > 1 ? (n / (values.length - 1)) * wide : wide / 2);
  const y = (value) => (signed ? (HIGH / 2) * (1 - value) : HIGH * (1 - value));
  const line = values.map((value, n) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const top = values.map((value, n) => [Math.abs(value), n]).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([, n]) => n);
  const largest = top.map((n) => `“${tokens[n]}” (${n}) ${values[n].toFixed(2)}`).join(", ");
  return h("figure", {},
    svg("svg", {
      viewBox: `0 -4 ${wide} ${HIGH + 8}`, role: "img", class: "unit", "aria-label": `Unit ${unit} over the tokens`,
    }, svg("line", { x1: 0, x2: wide, y1: y(0), y2: y(0), class: "zero" }), svg("polyline", { points: line })),
    h("figcaption", { role: "status" }, `Unit ${unit}, from ${signed ? "−1" : "0"} to 1; it is largest at ${largest}.`));
}
