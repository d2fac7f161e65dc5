// Fields for long texts.

import { h } from "/web/dom.js";

/** Below a field that holds only so many characters, tell where what was pasted had more. */
export function tellCut(area) {
  const note = h("small", { role: "status", class: "cut" });
  area.addEventListener("paste", (event) => {
    const kept = area.value.length - (area.selectionEnd - area.selectionStart);
    const given = event.clipboardData.getData("text").replaceAll("\r\n", "\n").length;
    const all = kept + given;
    note.textContent = all > area.maxLength ? `${area.maxLength.toLocaleString("en")} characters fit in here, and these `
      + `are ${all.toLocaleString("en")}: the rest of what you pasted was left out.` : "";
    if (note.textContent) area.after(note);
    else note.remove();
  });
  area.addEventListener("input", (event) => { if (event.inputType !== "insertFromPaste") note.remove(); });
  return area;
}
