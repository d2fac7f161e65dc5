// Views of kind token-table: a row of tokens, and below it the table of the one that is chosen.

import { post } from "/web/api.js";
import { h, replace } from "/web/dom.js";
import { TINTS, heat, tint } from "/web/parts/colours.js";
import { columns, plainTable, scrolled } from "/web/parts/table.js";
import { tokenRow } from "/web/parts/token_picker.js";

const TOTALS = ["p", "mixture"]; // names of the row that says what the others come to

const shade = (share) => ({ background: heat(share) });

export async function tableView(place, page, signal) {
  const { run, text, view } = page.settings;
  const data = await post("/api/inspect/table", { run, text, view }, signal);
  const colour = data.parts.length ? tint : shade;
  const below = h("section", { "aria-live": "polite" });
  const show = (n) => replace(below, detail(data, n));
  const chosen = Math.min(Math.max(0, Number(page.settings.token) || 0), data.tokens.length - 1);
  const look = (n) => ({ style: colour(data.details[n].shade), title: `${data.tokens[n]}: ${data.details[n].title}` });
  const row = tokenRow(data.tokens, chosen, look, (n) => {
    page.remember({ token: n || "" });
    show(n);
  }, "Tokens of the text");
  const names = data.parts.length ? data.parts : data.legend;
  const placeOf = (k) => (data.parts.length ? k : k / Math.max(1, names.length - 1));
  replace(place, [
    h("p", { class: "quiet" }, `${data.intro} Choose a token.`),
    names.length > 0 && h("ul", { class: "legend" }, names.map((name, k) => h("li", { style: colour(placeOf(k)) }, name))),
    row,
    data.truncated && h("p", { class: "quiet" }, `Only the first ${data.tokens.length} tokens are read.`),
    below,
    data.summary && data.details.length > 1 && wholeText(data.summary),
  ]);
  show(chosen);
}

/** A part's own colour in row k; grey for what they come to. */
const barColour = ({ parts }, k) => (!parts.length ? "--main" : k < parts.length ? TINTS[k % TINTS.length] : "--quiet");

/** How the parts of a mixture did over the whole text. */
const wholeText = ({ caption, titles, rows }) => h("section", {},
  h("h2", {}, "Over the whole text"), h("p", { class: "quiet" }, caption), plainTable(caption, titles, rows));

function detail(data, n) {
  const { title, rows, shares, notes } = data.details[n];
  const bar = (k) => h("span", { class: "giving", "aria-hidden": "true" }, h("span", { style: {
    width: `${100 * Math.max(0, Math.min(1, shares[k] ?? 0))}%`,
    background: `var(${barColour(data, k)})`,
  } }));
  return [
    h("h2", {}, title.startsWith("“") ? title : `“${data.tokens[n]}”: ${title}`),
    notes.map((note) => h("p", {}, note)),
    rows.length > 0 && scrolled("The token's table", null, columns([...data.columns, ""], (i) => i > 0),
      rows.map((cells, k) => h("tr", { class: TOTALS.includes(cells[0]) ? "total" : "" },
        cells.map((cell, i) => h("td", { class: i > 0 ? "r" : "mono" }, cell)), h("td", {}, shares[k] > 0 && bar(k))))),
    data.outro && h("p", { class: "quiet" }, data.outro),
  ];
}
