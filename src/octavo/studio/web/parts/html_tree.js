// Elements from nested lists, as studio/routes/exercises.py makes them: ["p", { class: "quiet" }, "text", ["b", {}, "more"]].
// Only tags and attributes that octavo's own pages use are made.

const SPACES = { svg: "http://www.w3.org/2000/svg", math: "http://www.w3.org/1998/Math/MathML" };
const HTML = "http://www.w3.org/1999/xhtml";
const TAGS = new Set(("article details summary p h2 h3 ol ul li div span code b i sub sup table thead tbody tr th td "
  + "figure figcaption mark section pre small svg g path rect line text title circle math mrow mi mo mn msup msub mfrac "
  + "msqrt munder mover").split(" "));
const NAMES = new Set(("class x y d transform width height x1 x2 y1 y2 cx cy r viewBox fill fill-opacity opacity stroke "
  + "stroke-width stroke-dasharray paint-order text-anchor font-family font-size font-weight display tabindex role "
  + "aria-label displaystyle stretchy form scope title").split(" "));

/** The elements and texts of a list. */
export function elements(list, space = HTML) {
  return list.map((one) => (typeof one === "string" ? document.createTextNode(one) : element(one, space)));
}

function element([tag, attributes, ...children], space) {
  if (!TAGS.has(tag)) return document.createTextNode("");
  const own = SPACES[tag] ?? space;
  const made = document.createElementNS(own, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (NAMES.has(name)) made.setAttribute(name, value);
    else if (name === "style") made.style.cssText = value;
  }
  made.append(...elements(children, own));
  return made;
}
