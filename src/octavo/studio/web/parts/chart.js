// The studio's one chart: lines over a pair of axes. A line is identified by its dashes as well as by its colour. The
// values under the pointer, or where the arrow keys have moved to, are written below it.

import { h, replace, svg } from "/web/dom.js";
import { makeAxis, tickLabel } from "/web/parts/axis.js";
import { plain } from "/web/parts/numbers.js";

const HEIGHT = 300;
const MARGIN = { left: 52, right: 12, top: 10, bottom: 42 };
const MAX_POINTS = 400; // of a line that are drawn; of more, the means of neighbours
const MIN_WIDTH = 260;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const FEW_POINTS = 3; // a line of so few has them marked

/** At most MAX_POINTS points: the means of stretches that are equally long on the axis. */
function thinned(points, log) {
  if (points.length <= MAX_POINTS) return points;
  const at = (x) => (log ? Math.log(Math.max(x, 1e-9)) : x);
  const first = at(points[0][0]);
  const width = (at(points.at(-1)[0]) - first) / MAX_POINTS || 1;
  const bins = new Map();
  for (const [x, y] of points) {
    const bin = Math.min(MAX_POINTS - 1, Math.floor((at(x) - first) / width));
    const sums = bins.get(bin) ?? [0, 0, 0];
    bins.set(bin, [sums[0] + x, sums[1] + y, sums[2] + 1]);
  }
  return [...bins].sort((a, b) => a[0] - b[0]).map(([, [x, y, n]]) => [x / n, y / n]);
}

/** The index of the number that is nearest. */
function nearest(values, value) {
  return values.reduce((best, one, i) => (Math.abs(one - value) < Math.abs(values[best] - value) ? i : best), 0);
}

export class Chart {
  /** `label` names the chart to a screen reader; `onpick(x)` is called for a click, or Enter, at an x. */
  constructor(label, onpick = null) {
    this.onpick = onpick;
    this.picture = svg("svg", {
      role: "slider", tabindex: 0, "aria-label": `${label}; arrow keys read the values`, "aria-valuemin": 0,
      onpointermove: (event) => this.#point(event), onpointerdown: (event) => this.#point(event),
      onpointerleave: () => this.#show(null), onblur: () => this.#show(null), onkeydown: (event) => this.#key(event),
      onclick: () => this.#pick(), class: onpick ? "chart pick" : "chart",
    });
    this.key = h("ul", { class: "chart-key" });
    this.readout = h("p", { class: "chart-readout quiet" }, "\u00a0");
    this.element = h("figure", { class: "chart-figure" }, this.key, this.picture, this.readout);
    this.drawn = null;
    new ResizeObserver(() => this.content && this.draw(this.content)).observe(this.element);
  }

  /**
   * series: [{ name, points: [[x, y], ...], colour, dash, dots }], where colour is the number of a colour;
   * references: [{ name, y, colour }], horizontal lines; x and y: the axes' labels; logX, logY; rangeX, rangeY: fixed
   * ends; mark: a point that is marked; guide: an x that is marked; empty: the text where there is nothing to draw.
   */
  draw(content) {
    this.content = content;
    const { logX = false, logY = false } = content;
    const drawable = ([x, y]) => Number.isFinite(x ?? NaN) && Number.isFinite(y ?? NaN) && (!logX || x > 0)
      && (!logY || y > 0);
    const series = content.series.map((line, i) => ({ colour: i, dash: DASHES[i % DASHES.length], ...line,
      points: thinned(line.points.filter(drawable), logX) })).filter((line) => line.points.length);
    const references = (content.references ?? []).filter((line) => drawable([1, line.y]));
    this.#drawKey(series, references);
    this.picture.toggleAttribute("hidden", !series.length);
    if (!series.length) {
      this.drawn = null;
      replace(this.readout, content.empty ?? "There is nothing to draw yet.");
      return;
    }
    const width = Math.max(MIN_WIDTH, this.element.clientWidth || 700);
    const all = series.flatMap((line) => line.points);
    const across = makeAxis(content.rangeX ?? all.map(([x]) => x), { log: logX, tight: true });
    const up = makeAxis(content.rangeY ?? [...all.map(([, y]) => y), ...references.map((line) => line.y)],
      { log: logY, tight: Boolean(content.rangeY) });
    const X = (x) => MARGIN.left + (width - MARGIN.right - MARGIN.left) * across.share(x);
    const Y = (y) => HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.bottom - MARGIN.top) * up.share(y);
    const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
    const before = this.drawn?.at != null ? this.drawn.xs[this.drawn.at] : null;
    this.drawn = { series, X, Y, xs, at: null };
    this.marks = svg("g", { "aria-hidden": "true" });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("aria-valuemax", xs.length - 1);
    const guide = content.guide == null ? null : Math.min(across.high, Math.max(across.low, content.guide));
    replace(this.picture, [
      axes(content, across, up, X, Y, width), references.map((line) => drawReference(line, Y, width)),
      guide != null && vertical(X(guide)), series.map((line) => drawLine(line, X, Y)),
      content.mark && svg("circle", { class: "marked", cx: X(content.mark[0]), cy: Y(content.mark[1]), r: 6 }),
      this.marks,
    ]);
    this.#show(before == null ? null : nearest(xs, before));
  }

  #drawKey(series, references) {
    const sample = (line, dash) => svg("svg", { viewBox: "0 0 24 10", "aria-hidden": "true" },
      svg("path", { d: "M0 5H24", class: colourOf(line), "stroke-dasharray": dash, "stroke-width": line.dots ? 3 : 2 }));
    replace(this.key, series.length + references.length > 1 ? [
      series.map((line) => h("li", {}, sample(line, line.dash), line.name)),
      references.map((line) => h("li", {}, sample(line, "2 3"), `${line.name} ${plain(line.y)}`)),
    ] : []);
  }

  #point(event) {
    if (!this.drawn) return;
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.picture.viewBox.baseVal.width;
    this.#show(nearest(this.drawn.xs.map(this.drawn.X), x));
  }

  #pick() {
    if (this.onpick && this.drawn?.at != null) this.onpick(this.drawn.xs[this.drawn.at]);
  }

  #key(event) {
    if (!this.drawn) return;
    const last = this.drawn.xs.length - 1;
    const far = Math.max(1, Math.round(last / 20));
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: far, PageDown: -far };
    const at = this.drawn.at ?? (event.key in moves && moves[event.key] > 0 ? -1 : last + 1);
    if (event.key in moves) this.#show(Math.min(last, Math.max(0, at + moves[event.key])));
    else if (event.key === "Home") this.#show(0);
    else if (event.key === "End") this.#show(last);
    else if (event.key === "Escape") this.#show(null);
    else if (event.key === "Enter" && this.onpick) this.#pick();
    else return;
    event.preventDefault();
  }

  /** Write the values at the x of that number; null: none. */
  #show(at) {
    if (!this.drawn) return;
    this.drawn.at = at;
    const { series, X, Y, xs } = this.drawn;
    if (at == null) {
      replace(this.marks, []);
      replace(this.readout, "\u00a0");
      this.picture.setAttribute("aria-valuetext", "no value chosen");
      this.picture.setAttribute("aria-valuenow", 0);
      return;
    }
    const points = series.map((line) => ({ line, point: line.points.findLast(([x]) => x <= xs[at]) }))
      .filter(({ point }) => point);
    replace(this.marks, [vertical(X(xs[at])), points.map(({ line, point: [x, y] }) =>
      svg("circle", { cx: X(x), cy: Y(y), r: 4, class: `dot ${colourOf(line)}` }))]);
    const values = points.map(({ line, point }) => `${line.name} ${plain(point[1])}`).join(", ");
    replace(this.readout, `${this.content.x} ${plain(xs[at])}: ${values}`);
    this.picture.setAttribute("aria-valuenow", at);
    this.picture.setAttribute("aria-valuetext", this.readout.textContent);
  }
}

const colourOf = (line) => (line.colour == null ? "stroke quiet-line" : `stroke series${line.colour}`);
const vertical = (x) => svg("path", { d: `M${x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}`, class: "stroke quiet-line" });

function drawLine(line, X, Y) {
  // Where x goes back, a new stretch begins.
  const path = line.points.map(([x, y], i) =>
    `${i && x > line.points[i - 1][0] ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("");
  const dots = line.dots || line.points.length <= FEW_POINTS;
  return svg("g", {}, svg("path", {
    d: path, class: colourOf(line), "stroke-width": line.dots ? 2.5 : 1.8, "stroke-dasharray": line.dash,
  }), dots && line.points.map(([x, y]) =>
    svg("circle", { cx: X(x).toFixed(1), cy: Y(y).toFixed(1), r: 2.5, class: `dot ${colourOf(line)}` })));
}

const drawReference = (line, Y, width) => svg("path", {
  d: `M${MARGIN.left} ${Y(line.y).toFixed(1)}H${width - MARGIN.right}`, class: colourOf(line),
  "stroke-dasharray": "2 3", "stroke-width": 2,
});

function axes(content, across, up, X, Y, width) {
  const floor = HEIGHT - MARGIN.bottom;
  const thin = Math.ceil(across.ticks.length / Math.max(2, Math.floor((width - MARGIN.left) / 60)));
  return svg("g", { class: "axes" },
    up.ticks.map((tick) => [
      svg("path", { d: `M${MARGIN.left} ${Y(tick)}H${width - MARGIN.right}`, class: "grid" }),
      svg("text", { x: MARGIN.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)),
    ]),
    across.ticks.filter((_, i) => i % thin === 0).map((tick) => [
      svg("path", { d: `M${X(tick)} ${floor}v4`, class: "grid" }),
      svg("text", { x: X(tick), y: floor + 17, "text-anchor": "middle" }, tickLabel(tick)),
    ]),
    svg("text", { x: (MARGIN.left + width) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, content.x),
    svg("text", {
      transform: `translate(12 ${(MARGIN.top + floor) / 2}) rotate(-90)`, "text-anchor": "middle",
    }, content.y));
}
