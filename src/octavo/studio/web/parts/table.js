// What may be wider than the page scrolls by itself, by the keyboard too.

import { h } from "/web/dom.js";

/** A table in a place of its own; `titles` are the cells of its head, `rows` made already, or a body. */
export const scrolled = (label, kind, titles, rows, caption) =>
  h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: kind },
    caption && h("caption", {}, caption), h("thead", {}, h("tr", {}, titles)),
    rows.nodeType ? rows : h("tbody", {}, rows)));

/** The titles of columns; those whose place is in `right` hold numbers. */
export const columns = (names, right = () => false) =>
  names.map((name, i) => h("th", { scope: "col", class: right(i) ? "r" : null }, name));
