// Tables of bytes from the studio, and what a byte stands for.

import { postForBytes } from "/web/api.js";

const MAGIC = "OCT1";
const HEADER = 20;
export const WEIGHT = 0; // kinds
export const SHARE = 1;
export const SIGNED = 2;
const VALUES = [(byte) => (byte / 255) ** 2, (byte) => byte / 255, (byte) => byte / 127.5 - 1];

/** The number that a byte of this kind stands for. */
export const valueOf = (kind, byte) => VALUES[kind](byte);

/** Ask for tables: { kind, count, rows, columns, table(n) }. */
export async function tables(path, asked, signal) {
  const data = await postForBytes(path, asked, signal);
  const view = new DataView(data);
  const magic = String.fromCharCode(...new Uint8Array(data, 0, 4));
  if (magic !== MAGIC) throw new Error("the studio sent a table of another version; load the page again");
  const [kind, count, rows, columns] = [4, 8, 12, 16].map((at) => view.getUint32(at, true));
  const table = (n) => new Uint8Array(data, HEADER + n * rows * columns, rows * columns);
  return { kind, count, rows, columns, table };
}
