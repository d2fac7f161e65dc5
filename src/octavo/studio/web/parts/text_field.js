// Text areas.

import { h } from "/web/dom.js";

/** Below a text area with a maximal length, a note where a pasted text was longer. */
export function limitPaste(area) {
  const note = h("small", { role: "status", class: "cut" });
  area.addEventListener("paste", (event) => {
    const rest = area.value.length - (area.selectionEnd - area.selectionStart);
    const pasted = event.clipboardData.getData("text").replaceAll("\r\n", "\n").length;
    const all = rest + pasted;
    note.textContent = all > area.maxLength ? `${area.maxLength.toLocaleString("en")} characters fit in here, and these `
      + `are ${all.toLocaleString("en")}: the rest of what you pasted was left out.` : "";
    if (note.textContent) area.after(note);
    else note.remove();
  });
  area.addEventListener("input", (event) => { if (event.inputType !== "insertFromPaste") note.remove(); });
  return area;
}
