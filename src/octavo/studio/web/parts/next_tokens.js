// What may come next: the model's own probabilities, and what temperature and cut-offs make of them.

import { post } from "/web/api.js";
import { h, replace } from "/web/dom.js";
import { number } from "/web/parts/reading_details.js";
import { percent, quoted } from "/web/parts/tokens.js";

const SHOWN = 16;

/** The panel; ongo({ run, prompt, path }) tells what to go on from: that which the panel was asked about. */
export function choices(ongo) {
  const rows = h("tbody", {});
  const said = h("p", { role: "status" });
  const place = h("div", {}, said, h("table", { class: "next" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"), h("th", {}, h("span", { class: "unseen" }, "bars")),
      h("th", { scope: "col", class: "r" }, "model"), h("th", { scope: "col", class: "r" }, "drawn"))), rows));

  function row(name, before, after, most, end) {
    const bar = (p) =>
      h("span", { style: { width: `${(100 * p) / most}%`, visibility: p > 0 ? "visible" : "hidden" } });
    const label = `Go on with ${quoted(name)}`;
    const go = { onclick: () => ongo(end), title: label, "aria-label": label };
    const button = end == null ? name : h("button", go, name);
    return h("tr", { class: after > 0 ? null : "cut" }, h("th", { scope: "row" }, button),
      h("td", { class: "barcell", "aria-hidden": "true" }, bar(before), bar(after)),
      h("td", { class: "r" }, percent(before)), h("td", { class: "r" }, after > 0 ? percent(after) : "cut"));
  }

  return {
    place,
    /** Ask for the place after the prompt and the path, and draw it. */
    async refresh(asked, signal) {
      const told = await post("/api/next", asked, signal);
      const end = (id) => ({ run: asked.run, prompt: asked.prompt, path: [...asked.path, id] });
      place.dataset.after = asked.path.length;
      const shown = told.ids.slice(0, SHOWN);
      const most = Math.max(told.p[0] ?? 0, ...told.drawn, 1e-9);
      const rest = [0, 1].map((side) =>
        told.rest[side] + [told.p, told.drawn][side].slice(SHOWN).reduce((sum, p) => sum + p, 0));
      const focused = place.contains(document.activeElement) ? document.activeElement.ariaLabel : null;
      replace(rows, [shown.map((id, i) => row(told.tokens[i], told.p[i], told.drawn[i], most, end(id))),
        told.possible > SHOWN && row("all others", rest[0], rest[1], Math.max(most, ...rest), null)]);
      if (focused) [...rows.querySelectorAll("button")].find((one) => one.ariaLabel === focused)?.focus();
      replace(said, `${number(told.kept)} of ${number(told.possible)} tokens can be drawn; the choice is worth `
        + `${told.entropy[1].toFixed(2)} bits (the model's own: ${told.entropy[0].toFixed(2)}).`);
    },
  };
}
