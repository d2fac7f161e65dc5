// Elements from plain values. Text is always text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function make(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** An HTML element: h("p", { class: "quiet" }, "text", h("b", {}, "more")). `on...` adds a listener. */
export const h = (name, properties = {}, ...children) => make(document.createElement(name), properties, children);

/** An SVG element. */
export const svg = (name, properties = {}, ...children) =>
  make(document.createElementNS(SVG, name), properties, children);

/** Put new children in place of the old. */
export function replace(element, children) {
  element.replaceChildren(...[children].flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** The message of an error, where it happened. */
export const errorMessage = (error) => h("p", { class: "error", role: "alert" }, error.message ?? String(error));

/** A label above a field. */
export const field = (label, control, hint) =>
  h("label", { class: "field" }, h("span", {}, label), control, hint && h("small", {}, hint));

/** A list of [value, text] to choose from; `onchange` is called with the value that is chosen. */
export function choice(options, chosen, onchange, properties = {}) {
  const list = h("select", { ...properties, onchange: () => onchange(list.value) }, options.map(([value, text = value]) =>
    h("option", { value, selected: String(value) === String(chosen) }, text)));
  return list;
}

/** A function that calls `action` once it has not been called again for a while. */
export function debounce(action, milliseconds = 250) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), milliseconds);
  };
}

/** Runs one task at a time in a place: a new one aborts the one before; errors are shown in the place. */
export function latest(place, outer) {
  let current = new AbortController();
  return async (task) => {
    current.abort();
    const mine = (current = new AbortController());
    const signal = AbortSignal.any([mine.signal, outer]);
    place.setAttribute("aria-busy", "true");
    try {
      await task(signal);
    } catch (error) {
      if (!signal.aborted) replace(place, errorMessage(error));
    } finally {
      if (mine === current) place.removeAttribute("aria-busy");
    }
  };
}
