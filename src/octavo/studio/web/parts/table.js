// Tables that scroll sideways by themselves, with the keyboard too.

import { h } from "/web/dom.js";

/** A table in a scrolling region; `titles` are the cells of its head, `rows` its rows or its body. */
export const scrolled = (label, kind, titles, rows, caption) =>
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: kind },
    caption && h("caption", {}, caption), h("thead", {}, h("tr", {}, titles)),
    rows.nodeType ? rows : h("tbody", {}, rows)));

/** A table of plain cells in a scrolling region; `right(i)` says whether column i holds numbers. */
export const plainTable = (label, names, rows, right = (i) => i > 0) =>
  scrolled(label, null, columns(names, right), rows.map((cells) =>
    h("tr", {}, cells.map((cell, i) => h("td", { class: right(i) ? "r" : null }, cell)))));

/** The heads of columns; `right(i)` says whether column i holds numbers. */
export const columns = (names, right = () => false) =>
  names.map((name, i) => h("th", { scope: "col", class: right(i) ? "r" : null }, name));
