// The round numbers at an axis.

const MOST_POWERS = 6; // of ten, that are written at a logarithmic axis

/** Of a linear axis: about `count` of them, whole ones where only those make sense. */
export function ticks(low, high, count = 5, whole = false) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const fine = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? power;
  const step = whole ? Math.max(1, Math.ceil(fine)) : fine;
  const found = [];
  const last = Math.floor(high / step + 1e-9);
  for (let i = Math.ceil(low / step - 1e-9); i <= last; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

/** Of a logarithmic axis: powers of ten, and twos and fives where there is room for them. */
export function logTicks(low, high) {
  const found = [];
  const powers = Math.log10(high / low);
  const within = powers < 2.5 ? [1, 2, 5] : [1];
  const step = Math.max(1, Math.ceil(powers / MOST_POWERS));
  const first = step * Math.floor(Math.log10(low) / step); // so that 1, where it is there, is one of them
  for (let power = first; power <= Math.ceil(Math.log10(high)); power += step) {
    for (const one of within) {
      const tick = +(one * 10 ** power).toPrecision(6);
      if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
    }
  }
  return found.length > 1 ? found : ticks(low, high);
}
