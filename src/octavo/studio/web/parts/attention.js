// Attention maps: all heads small, one of them large, as a matrix or as arcs; and statistics of the heads in a table.

import { post } from "/web/api.js";
import { choice, field, h, latest, replace } from "/web/dom.js";
import { arcs } from "/web/parts/attention_arcs.js";
import { bitmap, whenScheme } from "/web/parts/colours.js";
import { matrix } from "/web/parts/matrix.js";
import { tables } from "/web/parts/byte_tables.js";
import { plainTable } from "/web/parts/table.js";
import { percent } from "/web/parts/tokens.js";

const SMALL = 56; // pixels of a small map
const MANY = 64; // tokens: of so many, most weights are too small to be seen unless they are compared in a row
const LEAST = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]; // weights from which arcs are drawn

const HEADS = "-heads"; // ends the name of the tab beside a view of maps
const viewOf = ({ settings }) => settings.view.endsWith(HEADS) ? settings.view.slice(0, -HEADS.length) : settings.view;

const askedOf = ({ settings }) => ({
  run: settings.run, text: settings.text, view: viewOf({ settings }), ...(settings.language ? { language: settings.language } : {}),
});

/** The tab of maps. */
export async function attentionView(place, page, signal) {
  const data = await post("/api/inspect/maps", askedOf(page), signal);
  const { settings, remember } = page;
  const within = (name, most) => Math.min(Math.max(1, Number(settings[name]) || 1), most);
  const one = { layer: within("layer", data.layers), head: within("head", data.heads) };
  const stage = h("div", {});
  const draw = latest(stage, signal);
  const small = h("div", { class: "heads", role: "group", "aria-label": "All heads" });
  const controls = h("div", { class: "bar" });
  const reading = h("p", { class: "quiet" }); // how the drawing is read
  const legend = h("p", { class: "quiet map-legend" }); // what its shades mean
  const count = data.layers * data.heads;
  const shading = () => settings.shade || (data.keys.length > MANY ? "row" : "weight");

  function pick(layer, head) {
    Object.assign(one, { layer, head });
    remember({ layer: layer > 1 ? layer : "", head: head > 1 ? head : "" });
    for (const button of small.children) {
      button.setAttribute("aria-pressed", String(button.dataset.head === `${layer}.${head}`));
    }
    control();
    draw(showHead);
  }

  function control() {
    const numbers = (most) => Array.from({ length: most }, (_, i) => [i + 1, i + 1]);
    const arcsShown = settings.drawn === "arcs";
    replace(reading, howToRead(data.one, arcsShown));
    legend.hidden = arcsShown;
    replace(legend, ["0 %", h("span", { class: "map-scale" }), shading() === "row" ? "each row's largest" : "100 %"]);
    replace(controls, [
      count > 1 && field("Layer", choice(numbers(data.layers), one.layer, (value) => pick(Number(value), one.head))),
      count > 1 && field("Head", choice(numbers(data.heads), one.head, (value) => pick(one.layer, Number(value)))),
      field("Drawn as", choice([["", "matrix"], ["arcs", "arcs"]], settings.drawn ?? "", (drawn) => {
        remember({ drawn });
        control();
        draw(showHead);
      })),
      arcsShown
        ? field("Weights from", choice(LEAST.map((least) => [least, percent(least)]), settings.least || 0.05, (least) => {
          remember({ least: Number(least) === 0.05 ? "" : least });
          draw(showHead);
        }))
        : field("Shade", choice([["weight", "by weight"], ["row", "by each row's largest"]], shading(), (shade) => {
          remember({ shade });
          control();
          draw(showHead);
        })),
    ]);
  }

  async function showHead(ended) {
    const found = await tables("/api/inspect/map", { ...askedOf(page), ...one }, ended);
    const name = count > 1 ? `Layer ${one.layer}, head ${one.head}` : "Attention";
    const common = { label: name, signal: ended };
    if (settings.drawn === "arcs") {
      const drawn = arcs({
        ...common, looking: data.queries, seen: data.keys, one: data.one, chosen: Number(settings.token || -1),
        from: Number(settings.from || 0), onpick: (token) => remember({ token: token < 0 ? "" : token }),
        onmove: (from) => remember({ from: from || "" }),
      });
      replace(stage, drawn.element);
      drawn.show(found.table(0), found.kind, Number(settings.least || 0.05));
      return;
    }
    const drawn = matrix({
      ...common, rows: data.queries, columns: data.keys, at: settings.at ?? "", onmove: (at) => remember({ at }),
      tell: (row, column, a) => said(data, row, column, a),
    });
    replace(stage, drawn.element);
    await drawn.show(found.table(0), found.kind, shading() === "row");
  }

  replace(place, [
    data.translation && h("p", {}, "Translation: ", h("b", {}, data.translation)),
    data.note && h("p", {}, data.note),
    data.truncated && h("p", { class: "quiet" }, `Only the first ${data.queries.length - 1} tokens are read.`),
    count > 1 && small, controls, reading, legend, stage,
  ]);
  control();
  const drawing = draw(showHead);
  if (count > 1) {
    const found = await tables("/api/inspect/overview", askedOf(page), signal);
    replace(small, data.statistics.map((statistics, n) => smallMap(statistics, found, n, one, pick, signal)));
  }
  await drawing;
}

function howToRead(one, arcsShown) {
  if (arcsShown) {
    return one ? "An arc goes from a token to one that it attends to; the wider, the more."
      : "Below is the translation, above the source; a line goes from a token to one that it attended to.";
  }
  return one ? "Rows are the tokens from the top down; in each, what it attends to. Rows sum to 100 %."
    : "Rows are the translation from the top down, columns the source.";
}

function said(data, row, column, a) {
  const [here, there] = [`“${data.queries[row]}” (${row})`, `“${data.keys[column]}” (${column})`];
  if (data.causal && column > row) return `${here} cannot see ${there}`;
  return `${here} ${data.one ? "attends to" : "attended to"} ${there}: ${percent(a)}`;
}

function smallMap(statistics, found, n, one, pick, signal) {
  const { layer, head, kind } = statistics;
  const side = Math.max(found.rows, found.columns);
  const canvas = h("canvas", {
    width: found.columns, height: found.rows, "aria-hidden": "true",
    style: { width: `${(SMALL * found.columns) / side}px`, height: `${(SMALL * found.rows) / side}px` },
  });
  const draw = async () => {
    const image = await bitmap(found.table(n), found.rows, found.columns, found.kind, true);
    canvas.getContext("2d").drawImage(image, 0, 0);
  };
  draw();
  whenScheme(draw, signal);
  const name = `Layer ${layer}, head ${head}${kind ? `, ${kind}` : ""}`;
  return h("button", {
    type: "button", "aria-label": name, title: name, "data-head": `${layer}.${head}`,
    "aria-pressed": String(layer === one.layer && head === one.head), onclick: () => pick(layer, head),
  }, canvas, h("span", { "aria-hidden": "true" }, `${layer}.${head}`));
}

const COLUMNS = [
  ["entropy", "entropy", (x) => `${x.toFixed(2)} bits`], ["spread", "of possible", percent],
  ["distance", "distance", (x) => x.toFixed(1)], ["itself", "on itself", percent],
  ["previous", "on previous", percent], ["first", "on first", percent], ["kind", "kind", (x) => x],
];

/** The table of the heads. */
export async function headsView(place, page, signal) {
  const data = await post("/api/inspect/maps", askedOf(page), signal);
  const known = COLUMNS.filter(([name]) => data.statistics.some((one) => one[name] != null && one[name] !== ""));
  const open = (one) => page.go(viewOf(page), { layer: one.layer, head: one.head });
  const rows = data.statistics.map((one) => [
    h("button", { type: "button", class: "link", onclick: () => open(one) }, `layer ${one.layer}, head ${one.head}`),
    ...known.map(([name, , spell]) => (one[name] == null ? "–" : spell(one[name])))]);
  replace(place, [
    data.notes.length > 0 && h("ul", {}, data.notes.map((line) =>
      h("li", {}, `${line[0].toUpperCase()}${line.slice(1)}.`))),
    plainTable("Statistics of the heads", ["head", ...known.map(([, title]) => title)], rows,
      (i) => i > 0 && known[i - 1][0] !== "kind"),
    h("p", { class: "quiet" }, "Entropy is how widely a head attends: 0 bits where one token gets everything, log2(n) "
      + "where n tokens get the same; beside it, its share of what is possible.",
    known.some(([name]) => name === "distance") && " Distance is how many tokens away it attends.",
    " All are means over the text."),
  ]);
}
