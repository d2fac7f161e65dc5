// Curves over a pair of axes. Each is told apart by its dashes, not by its colour alone; arrow keys read it out.

import { h, svg, replace } from "/web/dom.js";
import { logTicks, ticks } from "/web/parts/ticks.js";

const WIDTH = 400, HEIGHT = 250, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 40;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const COLOURS = ["var(--a)", "var(--b)", "var(--c)", "var(--d)"];

/** A number as short as it can be read: 0.05, 12.5, 1,200, 3e-7. */
export function short(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return x.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return (+x.toPrecision(3)).toLocaleString("en");
}

/** A number at an axis: 10k, 2M. */
function tick(x) {
  const [unit, sign] = Math.abs(x) >= 1e6 ? [1e6, "M"] : [1e3, "k"];
  return Math.abs(x) >= 1e4 && Math.abs(x) < 1e9 ? `${+(x / unit).toPrecision(3)}${sign}` : short(x);
}

/** Where numbers lie between the ends of an axis, and which of them are written there. */
function axis(values, log, range) {
  let [low, high] = range ?? [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  if (log) {
    const span = Math.log10(high / low);
    return { share: (x) => Math.log10(x / low) / span, ticks: logTicks(low, high) };
  }
  return { share: (x) => (x - low) / (high - low), ticks: ticks(low, high, 4, values.every(Number.isInteger)) };
}

/**
 * A figure: series [{ name, points: [[x, y], ...] }], axes [x, y], log [x, y]. `range` fixes [x, y] ends, `mark`
 * [x, y] is drawn as a large dot, `at` is an x that is drawn as a line, `onpick(point)` is called with the point that
 * was clicked, `label` names the figure.
 */
export function chart({ series, axes, log = [false, false], range = [], mark, at, onpick, label }) {
  const drawn = series.map((one) => ({ ...one, points: one.points.filter(([x, y]) => x != null && y != null) }));
  const every = drawn.flatMap((one) => one.points);
  if (!every.length) return h("p", { class: "quiet" }, "There is nothing to draw.");
  const across = axis(every.map(([x]) => x), log[0], range[0]), up = axis(every.map(([, y]) => y), log[1], range[1]);
  const place = ([x, y]) => [LEFT + (WIDTH - LEFT - RIGHT) * across.share(x),
    HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * up.share(y)];
  const guide = svg("g", { class: "guide" });
  const told = h("p", { class: "quiet readout", "aria-live": "polite" });
  const figure = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "img", class: onpick ? "curve pick" : "curve",
    "aria-label": `${label ?? `${axes[1]} over ${axes[0]}`}. Arrow keys read the points.`,
  }, frame(across, up, axes, place), at != null && here(at, across), drawn.map((one, i) => curve(one, i, place)), guide,
  mark && dot(place(mark)));
  read(figure, drawn, axes, place, guide, told, onpick);
  const key = drawn.length > 1 && h("ul", { class: "key" }, drawn.map((one, i) => h("li", {},
    svg("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, svg("path", { d: "M0 5H28", ...look(i) })), one.name)));
  return h("figure", { class: "curve-figure" }, key, figure, told);
}

const look = (i) => ({
  class: "stroke", "stroke-dasharray": DASHES[i % DASHES.length], style: { stroke: COLOURS[i % COLOURS.length] },
});

function here(at, across) {
  const x = LEFT + (WIDTH - LEFT - RIGHT) * Math.min(1, Math.max(0, across.share(at)));
  return svg("line", { class: "here", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM });
}

const dot = ([x, y]) => svg("circle", { class: "operating", cx: x.toFixed(1), cy: y.toFixed(1), r: 6 });

function frame(across, up, axes, place) {
  const [left, right, bottom] = [LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM];
  const lines = up.ticks.map((y) => {
    const at = bottom - (bottom - TOP) * up.share(y);
    return [svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
      svg("text", { class: "end", x: left - 5, y: at + 4 }, tick(y))];
  });
  const ticks = across.ticks.map((x) => svg("text", {
    class: "middle", x: left + (right - left) * across.share(x), y: bottom + 15 }, tick(x)));
  return [lines, ticks, svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    svg("text", { class: "middle", x: (left + right) / 2, y: HEIGHT - 6 }, axes[0]),
    svg("text", { class: "middle", transform: `translate(12 ${(TOP + bottom) / 2}) rotate(-90)` }, axes[1])];
}

function curve(one, i, place) {
  const path = one.points.map((point, n) => {
    const [x, y] = place(point);
    return `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  const dots = one.points.length <= 3 ? one.points.map((point) => {
    const [x, y] = place(point);
    return svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 3, style: { fill: COLOURS[i % COLOURS.length] } });
  }) : [];
  return [svg("path", { d: path.join(""), ...look(i) }), dots];
}

/** Pointing at the figure, or the arrow keys in it, read the points; a click or Enter picks one. */
function read(figure, drawn, axes, place, guide, told, onpick) {
  const first = drawn.find((one) => one.points.length);
  const sorted = [...first.points].sort((a, b) => a[0] - b[0]);
  let now = -1;
  const show = (n) => {
    now = Math.max(0, Math.min(sorted.length - 1, n));
    const x = sorted[now][0], [at] = place(sorted[now]);
    replace(guide, svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }));
    const values = drawn.filter((one) => one.points.length).map((one) => {
      const [, y] = one.points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
      return `${drawn.length > 1 ? `${one.name} ` : ""}${short(y)}`;
    });
    replace(told, `${axes[0]} ${short(x)}: ${values.join(", ")}${drawn.length > 1 ? "" : ` ${axes[1]}`}`);
  };
  const hide = () => { now = -1; replace(guide, []); replace(told, []); };
  const nearest = (event) => {
    const box = figure.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * WIDTH;
    return sorted.reduce((best, point, n) =>
      (Math.abs(place(point)[0] - at) < Math.abs(place(sorted[best])[0] - at) ? n : best), 0);
  };
  figure.addEventListener("pointermove", (event) => show(nearest(event)));
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("click", (event) => { if (onpick) onpick(sorted[nearest(event)]); });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step) show(now < 0 ? (step < 0 ? sorted.length - 1 : 0) : now + step);
    else if (event.key === "Enter" && now >= 0 && onpick) onpick(sorted[now]);
    else return;
    event.preventDefault();
  });
}
