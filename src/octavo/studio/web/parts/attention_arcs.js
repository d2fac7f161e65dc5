// Looks as arcs from token to token; of two texts, as lines from the one below to the one above. A long text moves.

import { debounce, h } from "/web/dom.js";
import { css, whenScheme } from "/web/parts/colours.js";
import { gestures, keys } from "/web/parts/gestures.js";
import { percent } from "/web/parts/tokens.js";
import { valueOf } from "/web/parts/byte_tables.js";

const [NEAREST, FARTHEST] = [15, 26]; // pixels from token to token
const LABEL = 62; // pixels for a row of tokens
const HIGHEST = 230; // pixels of the arcs
const FONT = "12px ui-monospace, monospace";
const LETTERS = 9;
const MAX_LISTED = 5; // tokens that one attends to, in words

/**
 * looking and seen are tokens, `one` whether they are the same text; `chosen` is the token whose looks stand out, -1:
 * all; `from` is the first that is drawn.
 */
export function arcs({ looking, seen, one, label, chosen = -1, from = 0, onpick, onmove, signal }) {
  const canvas = h("canvas", {
    tabindex: 0, role: "application",
    "aria-label": `${label}. Left and right go from token to token; what each attends to is read out.`,
  });
  const readout = h("p", { class: "readout", role: "status", "aria-live": "polite" }, "\u00a0");
  const context = canvas.getContext("2d");
  const view = { x: Math.max(0, from) };
  const size = { width: 0, height: LABEL * (one ? 1 : 2) + HIGHEST, ratio: 1, apart: FARTHEST };
  const count = Math.max(looking.length, seen.length);
  const shown = { table: null, kind: 0, least: 0.05 };
  let at = chosen < looking.length ? chosen : -1;
  let due = false;
  const moved = debounce(() => !signal.aborted && onmove?.(Math.round(view.x)), 300);
  const weight = (row, column) => valueOf(shown.kind, shown.table[row * seen.length + column]);
  const across = (n) => (n + 0.5 - view.x) * size.apart;

  function layout() {
    if (!element.clientWidth) return;
    size.apart = Math.min(FARTHEST, Math.max(NEAREST, (element.clientWidth - 40) / count));
    size.width = Math.min(element.clientWidth, Math.ceil(count * size.apart) + 40);
    size.ratio = Math.min(2, devicePixelRatio || 1);
    canvas.width = size.width * size.ratio;
    canvas.height = size.height * size.ratio;
    canvas.style.width = `${size.width}px`;
    canvas.style.height = `${size.height}px`;
    canvas.style.touchAction = "pan-y";
    keep();
  }

  function keep() {
    view.x = Math.min(Math.max(0, view.x), Math.max(0, count + 1 - size.width / size.apart));
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (canvas.isConnected && shown.table) draw();
    });
  }

  function draw() {
    const style = getComputedStyle(canvas);
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    const [first, end] = [Math.floor(view.x), Math.ceil(view.x + size.width / size.apart)];
    const colours = { back: css("--series0"), ahead: css("--series1") };
    for (let row = Math.max(0, first); row < Math.min(end, looking.length); row += 1)
      if (row !== at) looks(row, at < 0 ? 1 : 0.12, colours);
    if (at >= 0) looks(at, 1, colours);
    context.globalAlpha = 1;
    context.font = FONT;
    tokens(looking, size.height - LABEL + 14, at, style, first, end);
    if (!one) tokens(seen, LABEL - 8, -1, style, first, end, true);
  }

  function looks(row, strength, colours) {
    const x = across(row);
    for (let column = 0; column < seen.length; column += 1) {
      const a = weight(row, column);
      if (a < shown.least) continue;
      const to = across(column);
      if (Math.max(x, to) < 0 || Math.min(x, to) > size.width) continue;
      context.globalAlpha = strength * (0.2 + 0.8 * Math.sqrt(a));
      context.lineWidth = 0.6 + 5 * a;
      context.strokeStyle = one && column > row ? colours.ahead : colours.back;
      curve(x, to, row === column);
    }
  }

  function curve(x, to, itself) {
    const floor = size.height - LABEL;
    context.beginPath();
    if (!one) {
      context.moveTo(x, floor);
      context.bezierCurveTo(x, floor - 90, to, LABEL + 90, to, LABEL);
    } else if (itself) context.ellipse(x, floor - 9, 5, 9, 0, 0, 2 * Math.PI);
    else {
      const half = Math.abs(x - to) / 2;
      const high = (HIGHEST - 6) * Math.min(1, (2 * half) / size.width) ** 0.7;
      context.ellipse((x + to) / 2, floor, half, high, 0, Math.PI, 2 * Math.PI);
    }
    context.stroke();
  }

  function tokens(texts, y, marked, style, first, end, above = false) {
    context.textBaseline = "middle";
    for (let n = Math.max(0, first); n < Math.min(end, texts.length); n += 1) {
      context.fillStyle = n === marked ? css("--main") : style.color;
      context.font = n === marked ? `bold ${FONT}` : FONT;
      const text = texts[n].length > LETTERS ? `${texts[n].slice(0, LETTERS - 1)}…` : texts[n];
      context.save();
      context.translate(across(n), y);
      context.textAlign = "center";
      if (texts.some((token) => token.length > 2)) {
        context.rotate(above ? -Math.PI / 4 : Math.PI / 4);
        context.textAlign = "left";
      }
      context.fillText(text, 0, 0);
      context.restore();
    }
  }

  function pick(n) {
    at = n >= 0 && n < looking.length && n !== at ? n : -1;
    tell();
    keep();
    onpick?.(at);
  }

  function tell() {
    if (at < 0 || !shown.table) {
      readout.textContent = "Choose a token to see its looks alone.";
      return;
    }
    const best = seen.map((token, n) => [weight(at, n), token, n]).sort((a, b) => b[0] - a[0]).slice(0, MAX_LISTED);
    const listed = best.filter(([a]) => a >= 0.005).map(([a, token, n]) => `“${token}” (${n}) ${percent(a)}`).join(", ");
    readout.textContent = `“${looking[at]}” (${at}) attends to ${listed || "nothing"}`;
  }

  const hands = {
    cursor: () => ({ row: at, column: at }),
    at: (x) => [Math.floor(view.x + x / size.apart), 0],
    point: () => {},
    pick,
    pan(x) {
      view.x += x / size.apart;
      keep();
      moved();
    },
    zoom: () => {},
    step(down, right) {
      const n = Math.min(Math.max(0, at + down + right), looking.length - 1);
      if (n !== at) pick(n);
      view.x = Math.min(n, Math.max(view.x, n + 2 - size.width / size.apart));
      keep();
      moved();
    },
    page: () => [size.width / 2, 0],
  };
  const button = (name, title, share) => h("button", {
    type: "button", "aria-label": title, title, onclick: () => hands.pan(share * size.width),
  }, name);
  const element = h("div", { class: "matrix" },
    h("div", { class: "bar" }, button("←", "Earlier tokens", -0.7), button("→", "Later tokens", 0.7), readout),
    canvas);
  gestures(canvas, hands);
  keys(canvas, hands);
  new ResizeObserver(() => !signal.aborted && layout()).observe(element);
  whenScheme(keep, signal);

  /** Draw a head's map; weights below `least` are left out. */
  function show(table, kind, least) {
    Object.assign(shown, { table, kind, least });
    tell();
    layout();
  }
  return { element, show };
}
