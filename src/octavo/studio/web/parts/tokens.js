// A text as its tokens, each coloured by its cost.

import { h } from "/web/dom.js";

export const STEPS = [0.5, 1, 2, 3, 4, 6, 8]; // bits per byte at which the colour changes

/** The colour class of a token that costs `bits` for `bytes` bytes; null bits are impossible. */
export function level(bits, bytes) {
  if (bits == null) return "never";
  return `s${STEPS.filter((step) => bits / Math.max(1, bytes) >= step).length}`;
}

/** What the colours mean. */
export function legend() {
  const bounds = [0, ...STEPS];
  const names = bounds.map((low, i) => (i + 1 < bounds.length ? `${low}–${bounds[i + 1]}` : `${low} and more`));
  return h("ul", { class: "legend", "aria-label": "bits per byte" },
    names.map((name, i) => h("li", { class: `s${i}` }, name)), h("li", { class: "never" }, "impossible"));
}

/** Above a legend. */
export const coloured = () => h("p", { class: "quiet keyed" }, "Colours are bits per byte:");

/** A share as per cent: 12 %, 0.3 %, 0.001 %. */
export function percent(p) {
  if (p >= 0.0995) return `${(100 * p).toFixed(0)} %`;
  return p >= 1e-6 ? `${+(100 * p).toPrecision(2)} %` : "0 %";
}

const CHUNK = 400; // tokens put into the page before it may draw again
const pause = () => new Promise((resolve) => setTimeout(resolve));

/** A token as it stands in a text: marks of spaces and line ends become these again. */
export const plain = (token) => token.replaceAll("␣", " ").replaceAll("⏎", "⏎\n");

/** A token as it is named, in quotes. */
export const quoted = (token) => `“${token}”`;

/**
 * A text whose tokens can be walked through: by pointer, or by arrow keys with one of them in the tab order.
 * onshow(i) tells that token i is pointed at or in focus; onchoose(i) that it was clicked, or Enter pressed on it;
 * onmove(i) that one has gone there, by a click or a key.
 */
export function walk(label, onshow, onchoose = () => {}, onmove = () => {}) {
  const spans = [];
  let current = 0;
  const place = h("div", {
    class: "tokens walk", role: "listbox", "aria-label": label, tabindex: "0",
    onfocusin: (event) => event.target !== place && go(at(event), false),
    onpointerover: (event) => at(event) != null && onshow(at(event)),
    onpointerleave: () => spans.length && onshow(current),
    onclick: (event) => { if (at(event) != null) { go(at(event)); onchoose(at(event)); } },
    onkeydown: key,
  });
  const at = (event) => (event.target.dataset?.i == null ? null : Number(event.target.dataset.i));

  function go(i, focus = true) {
    if (!spans[i]) return;
    spans[current]?.setAttribute("tabindex", "-1");
    spans[current]?.setAttribute("aria-selected", "false");
    current = i;
    place.setAttribute("tabindex", "-1");
    spans[i].setAttribute("tabindex", "0");
    spans[i].setAttribute("aria-selected", "true");
    if (focus) spans[i].focus({ preventScroll: false });
    onshow(i);
    onmove(i);
  }

  /** The token above or below, nearest to where this one begins. */
  function vertical(step) {
    const from = spans[current].getBoundingClientRect();
    let best = current;
    let line = null;
    for (let i = current + step; spans[i]; i += step) {
      const here = spans[i].getClientRects()[0];
      if (!here || Math.abs(here.top - from.top) < 2) continue;
      line ??= here.top;
      if (Math.abs(here.top - line) >= 2) break;
      const far = (one) => Math.abs(spans[one].getClientRects()[0].left - from.left);
      if (best === current || far(i) < far(best)) best = i;
    }
    return best;
  }

  function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !spans.length) return;
    const to = {
      ArrowRight: () => current + 1, ArrowLeft: () => current - 1, Home: () => 0, End: () => spans.length - 1,
      ArrowUp: () => vertical(-1), ArrowDown: () => vertical(1), Enter: () => (onchoose(current), current),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    go(event.target === place ? current : Math.max(0, Math.min(spans.length - 1, to())));
  }

  function add(token, kind) {
    const named = token === "␣" ? "space" : token === "⏎" ? "line end" : null;
    const span = h("span", {
      class: kind, role: "option", "aria-selected": "false", tabindex: "-1", "aria-label": named,
      "data-i": spans.length,
    }, plain(token));
    spans.push(span);
    return span;
  }

  return {
    place, spans, go,
    get current() { return current; },
    /** One more token. */
    push: (token, kind) => place.append(add(token, kind)),
    /** Other tokens in place of those that stand there. */
    async fill(tokens, kinds, signal) {
      const again = place.contains(document.activeElement);
      spans.length = 0;
      current = Math.min(current, Math.max(0, tokens.length - 1));
      place.replaceChildren();
      for (let start = 0; start < tokens.length; start += CHUNK) {
        if (start) await pause();
        if (signal?.aborted) return;
        const part = tokens.slice(start, start + CHUNK);
        place.append(...part.map((token, i) => add(token, kinds[start + i])));
      }
      if (again) go(current);
    },
  };
}
