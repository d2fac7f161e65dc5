// A table of numbers as a picture to zoom and to move: a thousand rows and columns are drawn from one bitmap.

import { debounce, h } from "/web/dom.js";
import { bitmap, css, whenScheme } from "/web/parts/colours.js";
import { gestures, keys } from "/web/parts/gestures.js";
import { valueOf } from "/web/parts/byte_tables.js";

const LARGEST = 40; // pixels of a cell
const LABELLED = 11; // pixels of a cell from which tokens are written beside it; below, places in numbers
const ROW = 15; // pixels of a row that is high enough, where cells are no squares
const RIGHT = 34; // pixels beside the cells: the last column's label leans out
const BELOW = 8; // pixels for half of the last row's label
const FONT = "12px ui-monospace, monospace";
const LETTERS = 11; // of a label

/**
 * rows and columns are labels; tell(row, column, value) says in words what a cell is; `square` keeps cells so; `at` is
 * where to begin, "x,y,zoom"; onmove(at) is called when the view has moved; onpick(row, column) when a cell is chosen.
 */
export function matrix({ rows, columns, label, tell, square = true, at = "", onmove, onpick, signal }) {
  const canvas = h("canvas", {
    tabindex: 0, role: "application", "aria-label": `${label}. Arrow keys go from cell to cell, plus and minus zoom.`,
  });
  const readout = h("p", { class: "readout", role: "status", "aria-live": "polite" }, "\u00a0");
  const context = canvas.getContext("2d");
  const [x0 = 0, y0 = 0, zoom0 = 1] = at.split(",").map(Number).filter(Number.isFinite);
  const view = { x: x0, y: y0, zoom: Math.max(1, zoom0) }; // the first column and row that are seen
  const size = { width: 0, height: 0, left: 0, plot: 0, down: 0, cell: 1, high: 1, ratio: 1 };
  const top = columns.some((one) => one.length > 1) ? 58 : 24; // pixels above the cells, for the columns' labels
  const cursor = { row: -1, column: -1 };
  let table = null;
  let image = null;
  let shown = { kind: 0, byRow: false };
  let due = false;
  const moved = debounce(() => !signal.aborted && onmove?.(where()), 300);

  const where = () => (view.zoom > 1 ? [view.x, view.y, view.zoom].join(",") : "");
  const cellWide = () => Math.min(size.cell * view.zoom, Math.max(LARGEST, size.cell));
  const cellHigh = () => (square ? cellWide() : Math.max(size.high, Math.min(ROW, size.high * view.zoom)));
  const most = () => Math.max(1, LARGEST / size.cell);

  function layout() {
    const wide = element.clientWidth;
    if (!wide) return;
    const longest = Math.max(...rows.slice(0, 2000).map((one) => Math.min(LETTERS, one.length)), 3);
    size.left = Math.min(10 + longest * 7.4, wide / 3);
    const across = wide - size.left - RIGHT;
    const down = Math.max(180, Math.min(innerHeight * 0.72, 720));
    size.cell = Math.min(LARGEST, across / columns.length, square ? Math.max(down / rows.length, 0.2) : Infinity);
    if (square && columns.length * size.cell < across * 0.6 && rows.length > columns.length)
      size.cell = Math.min(LARGEST, across / columns.length, 18);
    size.high = square ? size.cell : Math.max(Math.min(ROW * 1.4, 480 / rows.length), 1);
    size.plot = Math.min(across, columns.length * LARGEST);
    size.width = Math.floor(Math.min(wide, size.left + size.plot + RIGHT));
    size.down = Math.ceil(Math.min(rows.length * (square ? size.cell : size.high), square ? down : 480));
    size.height = top + size.down + BELOW;
    size.ratio = Math.min(2, devicePixelRatio || 1);
    canvas.width = size.width * size.ratio;
    canvas.height = size.height * size.ratio;
    canvas.style.width = `${size.width}px`;
    canvas.style.height = `${size.height}px`;
    keep();
  }

  /** Nothing beyond the table is shown. */
  function keep() {
    view.zoom = rounded(Math.min(Math.max(1, view.zoom), most()));
    view.x = rounded(Math.min(Math.max(0, view.x), Math.max(0, columns.length - size.plot / cellWide())));
    view.y = rounded(Math.min(Math.max(0, view.y), Math.max(0, rows.length - size.down / cellHigh())));
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    ask();
  }

  function ask() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (canvas.isConnected) draw();
    });
  }

  function draw() {
    const [wide, high] = [cellWide(), cellHigh()];
    const style = getComputedStyle(canvas);
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    if (image) {
      context.imageSmoothingEnabled = square && wide * size.ratio < 1;
      const [across, down] = [
        Math.min(columns.length - view.x, size.plot / wide),
        Math.min(rows.length - view.y, size.down / high),
      ];
      context.drawImage(image, view.x, view.y, across, down, size.left, top, across * wide, down * high);
      context.strokeStyle = css("--line");
      context.strokeRect(size.left + 0.5, top + 0.5, across * wide - 1, down * high - 1);
    }
    context.font = FONT;
    context.fillStyle = style.color;
    labels(wide, high);
    mark(wide, high);
  }

  function labels(wide, high) {
    const step = (cell) => [1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => one * cell >= 34) ?? 1000;
    const each = high >= LABELLED ? 1 : step(high);
    context.textBaseline = "middle";
    context.textAlign = "right";
    const end = Math.min(rows.length, Math.ceil(view.y + size.down / high));
    for (let row = Math.ceil(view.y / each) * each; row < end; row += each) {
      const y = top + (row + 0.5 - view.y) * high;
      if (y > top + 4) context.fillText(each > 1 && square ? row : short(rows[row]), size.left - 5, y);
    }
    const every = wide >= LABELLED ? 1 : step(wide);
    context.textAlign = "left";
    const right = Math.min(columns.length, Math.ceil(view.x + size.plot / wide));
    for (let column = Math.ceil(view.x / every) * every; column < right; column += every) {
      const x = size.left + (column + 0.5 - view.x) * wide;
      if (x < size.left) continue;
      context.save();
      context.translate(x, top - 5);
      if (every === 1 && columns[column].length > 1) context.rotate(-Math.PI / 4);
      else context.translate(-3, -3);
      context.fillText(every > 1 ? column : short(columns[column]), 0, 0);
      context.restore();
    }
  }

  /** A frame around the cell that is described. */
  function mark(wide, high) {
    if (cursor.row < 0) return;
    const [x, y] = [size.left + (cursor.column - view.x) * wide, top + (cursor.row - view.y) * high];
    if (x < size.left - 1 || y < top - 1) return;
    context.strokeStyle = css("--bad");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(wide, 3) + 2, Math.max(high, 3) + 2);
    context.lineWidth = 1;
  }

  function point(row, column) {
    const there = row >= 0 && row < rows.length && column >= 0 && column < columns.length;
    if (there && row === cursor.row && column === cursor.column) return;
    [cursor.row, cursor.column] = there ? [row, column] : [-1, -1];
    if (there && table) {
      readout.textContent = tell(row, column, valueOf(shown.kind, table[row * columns.length + column]));
    }
    ask();
  }

  const hands = {
    cursor: () => cursor,
    at: (x, y) => [Math.floor(view.y + (y - top) / cellHigh()), Math.floor(view.x + (x - size.left) / cellWide())],
    point,
    pick: (row, column) => {
      point(row, column);
      if (cursor.row >= 0) onpick?.(row, column);
    },
    pan(x, y) {
      view.x += x / cellWide();
      view.y += y / cellHigh();
      keep();
      moved();
    },
    zoom(factor, x = size.left + size.plot / 2, y = top + size.down / 2) {
      const [column, row] = [view.x + (x - size.left) / cellWide(), view.y + (y - top) / cellHigh()];
      view.zoom = factor ? view.zoom * factor : 1;
      view.zoom = Math.min(Math.max(1, view.zoom), most());
      view.x = column - (x - size.left) / cellWide();
      view.y = row - (y - top) / cellHigh();
      keep();
      moved();
    },
    /** Move the cursor; the view follows. */
    step(down, right) {
      const clamp = (value, length) => Math.min(Math.max(0, value), length - 1);
      point(clamp(cursor.row + down, rows.length), clamp(cursor.column + right, columns.length));
      const [wide, high] = [size.plot / cellWide(), size.down / cellHigh()];
      view.x = Math.min(cursor.column, Math.max(view.x, cursor.column + 1 - wide));
      view.y = Math.min(cursor.row, Math.max(view.y, cursor.row + 1 - high));
      keep();
      moved();
    },
    page: () => [size.width / 8, size.height / 8],
    zoomed: () => view.zoom > 1,
  };

  const button = (name, title, action) =>
    h("button", { type: "button", "aria-label": title, title, onclick: action }, name);
  const element = h("div", { class: "matrix" },
    h("div", { class: "bar" }, button("+", "Zoom in", () => hands.zoom(1.6)),
      button("−", "Zoom out", () => hands.zoom(1 / 1.6)), button("Whole", "Show all of it", () => hands.zoom(0)),
      readout),
    canvas,
    h("p", { class: "quiet small" }, "Drag to move. Zoom with + and −, or with the wheel once the map is clicked; then "
      + "the arrow keys go from cell to cell, and with Shift they move the map."));
  gestures(canvas, hands);
  keys(canvas, hands);
  new ResizeObserver(() => !signal.aborted && layout()).observe(element);
  whenScheme(() => table && show(table, shown.kind, shown.byRow), signal);

  /** Draw a table of this matrix's rows and columns. */
  async function show(next, kind, byRow = false) {
    [table, shown] = [next, { kind, byRow }];
    const made = await bitmap(next, rows.length, columns.length, kind, byRow);
    if (table !== next) return;
    image = made;
    layout();
  }

  return { element, show, readout, point, where };
}

/** As it stands in the address, so that an address gives the very same picture. */
const rounded = (value) => Math.round(value * 1000) / 1000;

function short(label) {
  return label.length > LETTERS ? `${label.slice(0, LETTERS - 1)}…` : label;
}
