// The next tokens: the model's own probabilities, and those after temperature and truncation.

import { post } from "/web/api.js";
import { h, replace } from "/web/dom.js";
import { number } from "/web/parts/reading_details.js";
import { percent, quoted } from "/web/parts/tokens.js";

const SHOWN_TOKENS = 16;

/** The panel; oncontinue({ run, prompt, path }) is called with the position to continue from. */
export function nextTokens(oncontinue) {
  const rows = h("tbody", {});
  const summary = h("p", { role: "status" });
  const place = h("div", {}, summary, h("table", { class: "next" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"), h("th", {}, h("span", { class: "unseen" }, "bars")),
      h("th", { scope: "col", class: "r" }, "model"), h("th", { scope: "col", class: "r" }, "sampled"))), rows));

  function row(name, before, after, most, end) {
    const bar = (p) =>
      h("span", { style: { width: `${(100 * p) / most}%`, visibility: p > 0 ? "visible" : "hidden" } });
    const label = `Continue with ${quoted(name)}`;
    const go = { onclick: () => oncontinue(end), title: label, "aria-label": label };
    const button = end == null ? name : h("button", go, name);
    return h("tr", { class: after > 0 ? null : "cut" }, h("th", { scope: "row" }, button),
      h("td", { class: "barcell", "aria-hidden": "true" }, bar(before), bar(after)),
      h("td", { class: "r" }, percent(before)), h("td", { class: "r" }, after > 0 ? percent(after) : "cut"));
  }

  return {
    place,
    /** Show the next tokens after the prompt and the path. */
    async refresh(position, signal) {
      const next = await post("/api/next", position, signal);
      const end = (id) => ({ run: position.run, prompt: position.prompt, path: [...position.path, id] });
      place.dataset.after = position.path.length;
      const shown = next.ids.slice(0, SHOWN_TOKENS);
      const most = Math.max(next.p[0] ?? 0, ...next.sampled, 1e-9);
      const rest = [0, 1].map((side) =>
        next.rest[side] + [next.p, next.sampled][side].slice(SHOWN_TOKENS).reduce((sum, p) => sum + p, 0));
      const focused = place.contains(document.activeElement) ? document.activeElement.ariaLabel : null;
      replace(rows, [shown.map((id, i) => row(next.tokens[i], next.p[i], next.sampled[i], most, end(id))),
        next.possible > SHOWN_TOKENS && row("all others", rest[0], rest[1], Math.max(most, ...rest), null)]);
      if (focused) [...rows.querySelectorAll("button")].find((one) => one.ariaLabel === focused)?.focus();
      replace(summary, `${number(next.allowed)} of ${number(next.possible)} tokens can be sampled; the entropy is `
        + `${next.entropy[1].toFixed(2)} bits (the model's own: ${next.entropy[0].toFixed(2)}).`);
    },
  };
}
