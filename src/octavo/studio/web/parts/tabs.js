// Tabs: one of several views. The arrow keys go from tab to tab.

import { h } from "/web/dom.js";

/** The tabs and the panel below them; `onpick` is called with the name of the tab that is chosen. */
export function tabs(list, chosen, onpick, label) {
  const panel = h("div", { role: "tabpanel", id: "view", tabindex: 0 });
  const buttons = list.map(({ view, title }) => h("button", {
    type: "button", role: "tab", id: `tab-${view}`, "aria-controls": "view", "data-view": view,
    onclick: () => pick(view),
  }, title));
  const bar = h("div", { role: "tablist", class: "tabs", "aria-label": label, onkeydown: move }, buttons);

  function mark(name) {
    for (const button of buttons) {
      const here = button.dataset.view === name;
      button.setAttribute("aria-selected", String(here));
      button.tabIndex = here ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${name}`);
  }

  function pick(name) {
    mark(name);
    onpick(name);
  }

  function move(event) {
    const at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const [left, right] = [at === 0 ? last : at - 1, at === last ? 0 : at + 1];
    const to = { ArrowLeft: left, ArrowRight: right, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    buttons[to].focus();
    pick(buttons[to].dataset.view);
  }

  mark(chosen);
  return { bar, panel, mark };
}
