// A text as tokens of which one is chosen: by a click, or with the arrow keys.

import { h } from "/web/dom.js";

/** `look(n)` gives a token's class, style and title; `onpick(n)` is called where another is chosen. */
export function tokenRow(tokens, chosen, look, onpick, label) {
  const items = tokens.map((token, n) => {
    const { title, ...rest } = look(n);
    return h("span", {
      role: "option", "aria-selected": "false", tabindex: -1, "data-n": n, "aria-label": title, title, ...rest,
    }, token);
  });
  const row = h("div", {
    role: "listbox", class: "tokens pickable", "aria-label": label, onkeydown: move, onclick: click,
  }, items);
  let at = -1;

  function mark(n) {
    if (at >= 0) {
      items[at].setAttribute("aria-selected", "false");
      items[at].tabIndex = -1;
    }
    at = n;
    items[at].setAttribute("aria-selected", "true");
    items[at].tabIndex = 0;
  }

  function pick(n) {
    mark(n);
    items[n].focus();
    onpick(n);
  }

  function click(event) {
    const item = event.target.closest("[data-n]");
    if (item) pick(Number(item.dataset.n));
  }

  function move(event) {
    const last = items.length - 1;
    const to = { ArrowRight: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    pick(to);
  }

  if (items.length) mark(Math.min(Math.max(0, chosen), items.length - 1));
  return row;
}
