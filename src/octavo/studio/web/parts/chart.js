// A chart of lines. What is under the pointer, or where the arrow keys have moved to, is told below it.

import { h, replace, svg } from "/web/dom.js";
import { plain, short } from "/web/parts/numbers.js";
import { logTicks, ticks } from "/web/parts/ticks.js";

const HEIGHT = 300;
const ROOM = { left: 52, right: 12, top: 10, bottom: 42 };
const MOST = 400; // points of a line that are drawn; each is then the mean of its neighbours

/** At most MOST points: the means of stretches that are equally long on the axis. */
function thinned(points, log) {
  if (points.length <= MOST) return points;
  const at = (x) => (log ? Math.log(Math.max(x, 1e-9)) : x);
  const first = at(points[0][0]);
  const width = (at(points.at(-1)[0]) - first) / MOST || 1;
  const bins = new Map();
  for (const [x, y] of points) {
    const bin = Math.min(MOST - 1, Math.floor((at(x) - first) / width));
    const sums = bins.get(bin) ?? [0, 0, 0];
    bins.set(bin, [sums[0] + x, sums[1] + y, sums[2] + 1]);
  }
  return [...bins].sort((a, b) => a[0] - b[0]).map(([, [x, y, n]]) => [x / n, y / n]);
}

function scale(low, high, from, to, log) {
  const at = log ? Math.log : (value) => value;
  const [a, b] = [at(low), at(high)];
  return (value) => from + ((at(value) - a) / (b - a || 1)) * (to - from);
}

/** The least and the most of some numbers, apart from each other. */
function range(values, log, margin) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low === high) [low, high] = log ? [low / 1.1, high * 1.1] : [low - 0.5, high + 0.5];
  else if (margin && !log) [low, high] = [low - 0.04 * (high - low), high + 0.04 * (high - low)];
  return [low, high];
}

/** The index of the x that is nearest. */
function nearest(xs, x) {
  let best = 0;
  for (let i = 1; i < xs.length; i++) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
  return best;
}

/** Lines over one axis. */
export class Chart {
  /** A chart with a label for those who do not see it. */
  constructor(label) {
    this.picture = svg("svg", {
      role: "slider", tabindex: 0, "aria-label": `${label}; arrow keys move along it`, "aria-valuemin": 0,
      onpointermove: (event) => this.#point(event), onpointerdown: (event) => this.#point(event),
      onpointerleave: () => this.#show(null), onkeydown: (event) => this.#key(event), class: "chart",
    });
    this.key = h("ul", { class: "chart-key" });
    this.readout = h("p", { class: "chart-told quiet" }, "\u00a0");
    this.element = h("figure", {}, this.key, this.picture, this.readout);
    this.drawn = null;
    new ResizeObserver(() => this.asked && this.draw(this.asked)).observe(this.element);
  }

  /** series: [{ name, points, colour, dash, dots }], references: [{ name, y, colour }], x and y: what the axes are. */
  draw(asked) {
    this.asked = asked;
    const { logX = false, logY = false } = asked;
    const good = ([x, y]) => Number.isFinite(x) && Number.isFinite(y) && (!logX || x > 0) && (!logY || y > 0);
    const series = asked.series.map((one) => ({ ...one, points: thinned(one.points.filter(good), logX) }))
      .filter((one) => one.points.length);
    const references = (asked.references ?? []).filter((one) => Number.isFinite(one.y) && (!logY || one.y > 0));
    this.#drawKey(series, references);
    if (!series.length) {
      replace(this.picture, []);
      this.picture.setAttribute("hidden", "");
      replace(this.readout, asked.empty ?? "There is nothing to draw yet.");
      return;
    }
    this.picture.removeAttribute("hidden");
    const width = Math.max(260, this.element.clientWidth || 700);
    const all = series.flatMap((one) => one.points);
    const [x0, x1] = range(all.map(([x]) => x), logX);
    const [y0, y1] = range([...all.map(([, y]) => y), ...references.map((one) => one.y)], logY, true);
    const X = scale(x0, x1, ROOM.left, width - ROOM.right, logX);
    const Y = scale(y0, y1, HEIGHT - ROOM.bottom, ROOM.top, logY);
    const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
    const before = this.drawn?.at != null ? this.drawn.xs[this.drawn.at] : null;
    this.drawn = { series, X, Y, xs, asked, at: null };
    this.marks = svg("g", { "aria-hidden": "true" });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("aria-valuemax", xs.length - 1);
    replace(this.picture, [
      axes(asked, X, Y, [x0, x1], [y0, y1], width), references.map((one) => reference(one, Y, width)),
      series.map((one) => line(one, X, Y)), this.marks,
    ]);
    this.#show(before == null ? null : nearest(xs, before));
  }

  #drawKey(series, references) {
    const sign = (one, dash) => svg("svg", { viewBox: "0 0 24 10", "aria-hidden": "true" }, svg("path", {
      d: "M0 5H24", class: `stroke ${one.colour ?? "q"}`, "stroke-dasharray": dash, "stroke-width": one.dots ? 3 : 2,
    }));
    replace(this.key, [
      series.map((one) => h("li", {}, sign(one, one.dash), one.name)),
      references.map((one) => h("li", {}, sign(one, "2 3"), `${one.name} ${plain(one.y)}`)),
    ]);
  }

  #point(event) {
    if (!this.drawn) return;
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.picture.viewBox.baseVal.width;
    this.#show(nearest(this.drawn.xs.map(this.drawn.X), x));
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
    else return;
    event.preventDefault();
  }

  /** Tell the values at one place; null: none. */
  #show(at) {
    if (!this.drawn) return;
    this.drawn.at = at;
    const { series, X, Y, xs, asked } = this.drawn;
    if (at == null) {
      replace(this.marks, []);
      replace(this.readout, "\u00a0");
      this.picture.setAttribute("aria-valuetext", "no place chosen");
      this.picture.setAttribute("aria-valuenow", 0);
      return;
    }
    const found = series.map((one) => ({ one, point: one.points.findLast(([x]) => x <= xs[at]) }))
      .filter(({ point }) => point);
    const place = X(xs[at]);
    replace(this.marks, [
      svg("path", { d: `M${place} ${ROOM.top}V${HEIGHT - ROOM.bottom}`, class: "stroke q", "stroke-width": 1 }),
      found.map(({ one, point: [x, y] }) => svg("circle", { cx: X(x), cy: Y(y), r: 4, class: one.colour })),
    ]);
    const told = found.map(({ one, point }) => `${one.name} ${plain(point[1])}`).join(", ");
    replace(this.readout, `${asked.x} ${plain(xs[at])}: ${told}`);
    this.picture.setAttribute("aria-valuenow", at);
    this.picture.setAttribute("aria-valuetext", this.readout.textContent);
  }
}

function line(one, X, Y) {
  // Where x goes back, a new stretch begins.
  const path = one.points.map(([x, y], i) =>
    `${i && x > one.points[i - 1][0] ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("");
  return svg("g", {}, svg("path", {
    d: path, class: `stroke ${one.colour}`, "stroke-width": one.dots ? 2.5 : 1.5, "stroke-dasharray": one.dash,
  }), (one.dots || one.points.length === 1) && one.points.map(([x, y]) =>
    svg("circle", { cx: X(x).toFixed(1), cy: Y(y).toFixed(1), r: 2.5, class: one.colour })));
}

const reference = (one, Y, width) => svg("path", {
  d: `M${ROOM.left} ${Y(one.y).toFixed(1)}H${width - ROOM.right}`, class: `stroke ${one.colour ?? "q"}`,
  "stroke-dasharray": "2 3", "stroke-width": 2,
});

function axes(asked, X, Y, [x0, x1], [y0, y1], width) {
  const floor = HEIGHT - ROOM.bottom;
  const room = Math.max(2, Math.floor((width - ROOM.left) / 90));
  const across = asked.logX ? logTicks(x0, x1) : ticks(x0, x1, room);
  const thin = Math.ceil(across.length / (room + 2));
  const up = asked.logY ? logTicks(y0, y1) : ticks(y0, y1);
  return svg("g", { class: "axes" },
    up.map((tick) => [
      svg("path", { d: `M${ROOM.left} ${Y(tick)}H${width - ROOM.right}`, class: "grid" }),
      svg("text", { x: ROOM.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, short(tick)),
    ]),
    across.filter((_, i) => i % thin === 0).map((tick) =>
      svg("text", { x: X(tick), y: floor + 16, "text-anchor": "middle" }, short(tick))),
    svg("text", { x: (ROOM.left + width) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, asked.x),
    svg("text", {
      transform: `translate(12 ${(ROOM.top + floor) / 2}) rotate(-90)`, "text-anchor": "middle",
    }, asked.y));
}
