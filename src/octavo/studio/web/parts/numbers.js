// Numbers in few characters.

const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 as 1.23 M. */
export function short(value, digits = 3) {
  for (const [step, unit] of STEPS) if (value >= step) return `${+(value / step).toPrecision(digits)} ${unit}`;
  return `${+value.toPrecision(digits)}`;
}

/** A number of bytes: 1.12 MB. */
export const bytes = (value) => (value < 1000 ? `${value} B` : `${short(value)}B`);

/** Seconds of work: 0.033 s, 12 s, 3:05 min, 1:02:03 h. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds < 10 ? +seconds.toPrecision(2) : Math.round(seconds)} s`;
  const all = Math.round(seconds);
  const two = (value) => String(value).padStart(2, "0");
  if (all < 3600) return `${Math.floor(all / 60)}:${two(all % 60)} min`;
  return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)} h`;
}

/** A number with as many digits as are worth reading. */
export function plain(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1e5) return Math.round(value).toLocaleString("en-US");
  return String(+value.toPrecision(Math.abs(value) >= 1000 ? 6 : 5));
}
