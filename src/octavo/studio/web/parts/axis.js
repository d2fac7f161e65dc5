// An axis: the range of some numbers, linear or logarithmic, and its round tick values. The same rules as in
// octavo/pages/figures/plot.py, so that the studio's charts and the figures of reports look alike; a test compares them.

const TICKS = 6; // about as many
const MIN_TICKS = 3; // on every axis
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const near = 1e-9; // of rounding

/** A round distance, 1, 2 or 5 times a power of ten, that divides the span into about TICKS. */
function stepOf(span) {
  const power = 10 ** Math.floor(Math.log10(span / TICKS));
  return [1, 2, 5, 10, 20].map((factor) => factor * power).find((step) => span / step <= TICKS * (1 + near));
}

/** Powers of ten, every second or third of them where there are many; where there are few, 2 and 5 times them too. */
function logTicks(low, high) {
  const [first, last] = [Math.floor(Math.log10(low) + near), Math.ceil(Math.log10(high) - near)];
  const every = Math.max(1, Math.ceil((last - first) / TICKS));
  const factors = Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1];
  const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i).filter((power) => power % every === 0);
  return powers.flatMap((power) => factors.map((factor) => +(factor * 10 ** power).toPrecision(12)))
    .filter((tick) => low * (1 - near) <= tick && tick <= high * (1 + near));
}

/**
 * An axis around finite numbers (positive ones, if it is logarithmic): { low, high, ticks, share(value) }. It ends at a
 * tick near by or, if `tight`, at the numbers themselves. `share` is how far along the axis a value lies, from 0 to 1.
 */
export function makeAxis(values, { log = false, tight = false } = {}) {
  let [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  if (low === high) {
    [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  }
  const step = stepOf(high - low);
  if (!tight && log) {
    const ticks = logTicks(low / 10, high * 10);
    const margin = (high / low) ** 0.05; // where there is no round number near by
    const [below, above] = [ticks.filter((tick) => tick <= low * (1 + near)), ticks.filter((tick) => tick >= high * (1 - near))];
    [low, high] = [below.at(-1) ?? low / margin, above[0] ?? high * margin];
  } else if (!tight) {
    [low, high] = [step * Math.floor(low / step + near), step * Math.ceil(high / step - near)];
  }
  const share = log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
  return { low, high, share, ticks: ticksOf(low, high, step, log) };
}

/** Round numbers, of a logarithmic axis powers of ten; where those are too few, evenly and ever more finely spaced ones. */
function ticksOf(low, high, step, log) {
  let ticks = log ? logTicks(low, high) : [];
  for (let finer = log ? stepOf(high - low) : step; ticks.length < MIN_TICKS; finer = nextFiner(finer)) {
    ticks = linearTicks(low, high, finer);
  }
  return ticks;
}

/** 5 after 10, 2 after 5, 1 after 2. */
function nextFiner(step) {
  const power = 10 ** Math.floor(Math.log10(step) + near);
  return { 1: 0.5, 2: 1, 5: 2 }[Math.round(step / power)] * power;
}

function linearTicks(low, high, step) {
  const [first, last] = [Math.ceil(low / step - near), Math.floor(high / step + near)];
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
}

/** A number at an axis: 0.05, 2,000, 20k, 3M, 10⁻⁸. */
export function tickLabel(value) {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(value)) + near);
  for (const [least, scale, unit] of [[6, 1e6, "M"], [4, 1e3, "k"]]) {
    if (power >= least && power < 9) return `${+(value / scale).toPrecision(4)}${unit}`;
  }
  if (power >= -3 && power <= 3) return (+value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 9 });
  const digits = String(+(value / 10 ** power).toPrecision(3));
  const ten = `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => SUPERSCRIPT[digit]).join("")}`;
  return digits === "1" ? ten : `${digits}·${ten}`;
}
