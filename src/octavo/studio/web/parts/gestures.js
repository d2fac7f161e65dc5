// Pointer, wheel and keys on a drawing that can be zoomed and moved.

/** One pointer moves or, without a drag, picks; two zoom; the wheel zooms where the drawing has been clicked. */
export function gestures(canvas, hands) {
  const down = new Map(); // pointers that are pressed, by their number
  let dragged = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const apart = () => {
    const [a, b] = [...down.values()];
    return { far: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    if (down.size === 1) dragged = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = place(event);
    const before = down.get(event.pointerId);
    if (!before) return hands.point(...hands.at(here.x, here.y));
    const was = down.size === 2 && apart();
    down.set(event.pointerId, here);
    dragged += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
    if (was) {
      const now = apart();
      hands.zoom(now.far / Math.max(1, was.far), now.x, now.y);
    } else if (dragged > 3) hands.pan(before.x - here.x, before.y - here.y);
  });
  const lift = (event) => {
    if (!down.delete(event.pointerId) || event.type === "pointercancel" || dragged > 3) return;
    const here = place(event);
    canvas.focus({ preventScroll: true });
    hands.pick(...hands.at(here.x, here.y));
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // else the page could not be scrolled past it
    event.preventDefault();
    const here = place(event);
    hands.zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 200), here.x, here.y);
  }, { passive: false });
}

/** Arrows go from cell to cell, with Shift they move the view; Page keys go ten rows; + − 0 zoom; Enter picks. */
export function keys(canvas, hands) {
  const far = 1e6;
  const steps = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0],
    Home: [0, -far], End: [0, far],
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = steps[event.key];
    const zoom = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, 0: 0 }[event.key];
    if (step && event.shiftKey && event.key.startsWith("Arrow")) {
      const [wide, high] = hands.page();
      hands.pan(step[1] * wide, step[0] * high);
    } else if (step) hands.step(...step);
    else if (zoom !== undefined) hands.zoom(zoom);
    else if (event.key === "Enter" && hands.cursor().row >= 0) hands.pick(hands.cursor().row, hands.cursor().column);
    else return;
    event.preventDefault();
  });
}
