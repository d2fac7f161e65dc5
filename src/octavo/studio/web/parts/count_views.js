// How models that count came to a probability: the back-off path of an n-gram, the votes of a mixture, a bag's share.

import { post } from "/web/api.js";
import { h, replace } from "/web/dom.js";
import { heat } from "/web/parts/colours.js";
import { tokenRow } from "/web/parts/token_picker.js";
import { level, percent } from "/web/parts/tokens.js";

const bits = (p) => (p > 0 ? `${(-Math.log2(p)).toFixed(2)} bits` : "impossible");
const small = (value) => (value === 0 ? "0" : Math.abs(value) >= 0.001 ? value.toFixed(4) : value.toExponential(1));

function bar(share, whole, colour = "--main") {
  const wide = whole > 0 ? Math.max(0, Math.min(1, share / whole)) : 0;
  return h("span", { class: "giving", "aria-hidden": "true" },
    h("span", { style: { width: `${100 * wide}%`, background: `var(${colour})` } }));
}

const region = (label, table) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
const cut = (told) =>
  told.cut && h("p", { class: "quiet" }, `Only the first ${told.tokens.length} tokens are looked at.`);
const shade = (share) => ({ background: heat(share) });

/** A row of tokens, and below it what is told of the one that is chosen. */
function pickable(place, told, page, look, detail, label, before) {
  const below = h("section", { "aria-live": "polite" });
  const show = (n) => replace(below, detail(n));
  const chosen = Math.min(Math.max(0, Number(page.settings.token) || 0), told.tokens.length - 1);
  const row = tokenRow(told.tokens, chosen, look, (n) => {
    page.remember({ token: n || "" });
    show(n);
  }, label);
  replace(place, [before, row, cut(told), below]);
  show(chosen);
}

/** The tab of an n-gram model. */
export async function backoffView(place, page, signal) {
  const told = await post("/api/inspect/backoff", { run: page.settings.run, text: page.settings.text }, signal);
  const most = Math.max(1, told.order - 1);
  const look = (n) => ({
    style: shade(told.answered[n] / most),
    title: `${told.tokens[n]}: ${percent(told.p[n])}, seen after ${tokens(told.answered[n])}`,
  });
  const lengths = Array.from({ length: told.order }, (_, k) => h("li", { style: shade(k / most) }, tokens(k)));
  pickable(place, told, page, look, (n) => path(told, n), "Tokens by the context that answered", [
    h("p", { class: "quiet" }, "Colour: the longest context that a token was seen after in training. Choose a token."),
    h("ul", { class: "legend", "aria-label": "Lengths of contexts" }, lengths),
  ]);
}

const tokens = (count) => (count === 1 ? "1 token" : `${count} tokens`);

function context(told, n, k) {
  const before = [told.begin, ...told.tokens.slice(0, n)];
  return k ? before.slice(-k).join("") : "nothing";
}

function path(told, n) {
  const rows = [];
  for (let k = Math.min(told.order - 1, n + 1); k >= 0; k -= 1) {
    const seen = told.seen[n][k];
    rows.push(h("tr", { class: told.found[n][k] ? "" : "faint" },
      h("td", { class: "mono" }, k ? context(told, n, k) : h("i", {}, "no context")),
      h("td", { class: "r" }, seen ? told.followed[n][k].toLocaleString("en") : "–"),
      h("td", {}, !seen ? "context never seen" : told.found[n][k] ? "yes" : "no"),
      h("td", { class: "r" }, small(told.alpha[n][k])), h("td", { class: "r" }, small(told.gamma[n][k])),
      h("td", { class: "r" }, small(told.share[n][k])), h("td", {}, bar(told.share[n][k], told.p[n]))));
  }
  const choices = told.vocab - 1;
  const uniform = h("tr", {}, h("td", {}, h("i", {}, "all alike")),
    h("td", { class: "r" }, choices.toLocaleString("en")), h("td", {}),
    h("td", { class: "r" }, small(1 / choices)), h("td", {}),
    h("td", { class: "r" }, small(told.uniform[n])), h("td", {}, bar(told.uniform[n], told.p[n])));
  const total = h("tr", { class: "total" }, h("td", {}, "p"), h("td", {}), h("td", {}), h("td", {}), h("td", {}),
    h("td", { class: "r" }, small(told.p[n])), h("td", {}));
  const head = ["context", "followed by", "this one", "alpha", "gamma", "gives to p", ""];
  const [count, all] = told.counts?.[n] ?? [];
  return [
    h("h2", {}, `“${told.tokens[n]}” after “${context(told, n, Math.min(told.order - 1, n + 1))}”: `
      + `${percent(told.p[n])}, ${bits(told.p[n])}`),
    told.counts && h("p", {}, `The longest context was seen ${all.toLocaleString("en")} times, `
      + `${count.toLocaleString("en")} times with this token behind it.`),
    region("The back-off path", h("table", {}, h("thead", {}, h("tr", {}, head.map((title, i) =>
      h("th", { class: [1, 3, 4, 5].includes(i) ? "r" : "" }, title)))), h("tbody", {}, rows, uniform, total))),
    h("p", { class: "quiet" }, "From the longest context down: by how many different tokens it was followed in "
      + "training, whether this was one of them, alpha, what the token gets there, and gamma, what is handed down to "
      + "the next shorter one. A context gives alpha times all gammas above it; together that is p.",
    told.counts ? "" : " The model keeps no counts, only these."),
  ];
}

const PARTS = ["--series0", "--series1", "--series2", "--series3"];

/** The tab of a mixture. */
export async function votesView(place, page, signal) {
  const told = await post("/api/inspect/votes", { run: page.settings.run, text: page.settings.text }, signal);
  const share = (n, i) => told.votes[n][i] * told.weights[n][i];
  const first = (n) => told.parts.reduce((best, _, i) => (share(n, i) > share(n, best) ? i : best), 0);
  const tint = (i) => ({ background: `color-mix(in srgb, var(${PARTS[i % 4]}) 30%, var(--paper))` });
  const look = (n) => ({
    style: tint(first(n)), title: `${told.tokens[n]}: ${percent(told.p[n])}, most from ${told.parts[first(n)]}`,
  });
  pickable(place, told, page, look, (n) => [
    h("h2", {}, `“${told.tokens[n]}”: ${percent(told.p[n])}, ${bits(told.p[n])}`),
    region("The parts' votes", h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "part"),
        ["its p", "weight", "gives to p"].map((one) => h("th", { class: "r" }, one)), h("th", {}))),
      h("tbody", {}, told.parts.map((part, i) => h("tr", {}, h("td", {}, part),
        [small(told.votes[n][i]), percent(told.weights[n][i]), small(share(n, i))].map((one) =>
          h("td", { class: "r" }, one)),
        h("td", {}, bar(share(n, i), told.p[n], PARTS[i % 4])))),
      h("tr", { class: "total" }, h("td", {}, "p"), h("td", {}), h("td", {}),
        h("td", { class: "r" }, small(told.p[n])), h("td", {}))))),
    told.chooser && h("p", { class: "quiet" }, `The weights are those for a context of which ${told.chooser} knows `
      + `${tokens(told.classes[n])}.`),
  ], "Tokens by the part that gave most", [
    h("p", { class: "quiet" }, "Colour: the part that gave most to the token's probability. Choose a token."),
    h("ul", { class: "legend" }, told.parts.map((part, i) => h("li", { style: tint(i) }, part))),
  ]);
}

/** The tab of a bag of words. */
export async function bagView(place, page, signal) {
  const asked = { run: page.settings.run, text: page.settings.text };
  const told = await post("/api/read", asked, signal);
  const p = (n) => (told.bits[n] == null ? 0 : 2 ** -told.bits[n]);
  if (!told.tokens.length) throw new Error("there is nothing to look at: the text is empty; write a sentence or two");
  const look = (n) => ({ class: level(told.bits[n], told.bytes[n]), title: `${told.tokens[n]}: ${percent(p(n))}` });
  pickable(place, told, page, look, (n) => [
    h("h2", {}, `“${told.tokens[n]}”: ${percent(p(n))}, ${bits(p(n))}`),
    h("p", {}, `It is number ${told.ranks[n].toLocaleString("en")} of all tokens, and so in every place.`),
  ], "Tokens by what they cost", h("p", { class: "quiet" }, "A bag has no state: each token has the same probability "
    + "wherever it stands, so there is nothing to see but that."));
}
