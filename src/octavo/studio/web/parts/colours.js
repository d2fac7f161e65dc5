// The colours of drawn numbers, taken from the page's own, so that they follow light and dark.

import { SIGNED } from "/web/parts/byte_tables.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const WORK = 4; // milliseconds of work before others get their turn

/** A colour of the style sheet, by its name, as red, green, blue. */
export function rgb(name) {
  const [light, night] = getComputedStyle(document.documentElement).getPropertyValue(name).match(/[0-9a-f]{6}/g);
  const hex = dark.matches ? night : light; // light-dark(#..., #...)
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A colour of the style sheet for a canvas. */
export const css = (name) => `rgb(${rgb(name).join(" ")})`;

/** Call `action` where light changes to dark, or back, until the signal ends it. */
export const whenScheme = (action, signal) => dark.addEventListener("change", action, { signal });

/** 256 packed colours from paper to the main colour; of numbers with a sign, from one colour over paper to another. */
export function scale(kind) {
  const [paper, plus, minus] = [rgb("--paper"), rgb("--main"), rgb("--negative")];
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    const value = kind === SIGNED ? byte / 127.5 - 1 : byte / 255;
    const [r, g, b] = paper.map((low, i) => low + ((value < 0 ? minus : plus)[i] - low) * Math.abs(value));
    return (255 << 24) | (b << 16) | (g << 8) | r; // the smallest byte first, as every browser's machine has it
  });
}

/** A bitmap of bytes; `byRow` gives each row's largest the full colour. It pauses, so that the page stays alive. */
export async function bitmap(table, rows, columns, kind, byRow = false) {
  const colours = scale(kind);
  const pixels = new Uint32Array(rows * columns);
  let began = performance.now();
  for (let row = 0; row < rows; row += 1) {
    const [first, end] = [row * columns, (row + 1) * columns];
    let most = 255;
    if (byRow) {
      most = 1;
      for (let i = first; i < end; i += 1) if (table[i] > most) most = table[i];
    }
    for (let i = first; i < end; i += 1) pixels[i] = colours[most === 255 ? table[i] : (table[i] * 255 / most) | 0];
    if (performance.now() - began > WORK) {
      await new Promise((resolve) => setTimeout(resolve));
      began = performance.now();
    }
  }
  const canvas = new OffscreenCanvas(columns, rows);
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows), 0, 0);
  return canvas.transferToImageBitmap();
}

/** A background behind text, deeper for a larger share; the scheme says how deep at most, so that it can be read. */
export const heat = (share) => `color-mix(in srgb, var(--main) calc(${share.toFixed(3)} * var(--heat)), var(--paper))`;

/** Names of the colours that tell parts apart; each is mixed in three shares, so that 18 parts differ. */
export const TINTS = ["--series0", "--series1", "--series2", "--series3", "--series4", "--series5"];
const SHARES = [30, 48, 14]; // per cent of the colour: of the first parts, of the next ones

/** The background of a part by its number. */
export const tint = (part) => {
  const share = SHARES[Math.floor(part / TINTS.length) % SHARES.length];
  return { background: `color-mix(in srgb, var(${TINTS[part % TINTS.length]}) ${share}%, var(--paper))` };
};
