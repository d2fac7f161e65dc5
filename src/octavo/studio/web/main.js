// Which page is shown: the address after # says it, `#/read?run=kn7&text=To+be`, so every view can be shared.

import { h, replace, said } from "/web/dom.js";
import { get } from "/web/api.js";

const PAGES = {
  runs: "Runs", read: "Read", inside: "Inside", write: "Write", classify: "Classify", answer: "Answer",
  exercises: "Exercises",
};
const POLL = 400; // milliseconds between looks at how far a model has been read
const main = document.getElementById("main");
let leaving = new AbortController();

/** The page and its settings, from the address. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path in PAGES ? path : "runs", params: new URLSearchParams(query) };
}

/** Write a view's settings into the address, without showing the page anew. Empty ones are left out. */
export function remember(page, settings) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) if (value !== "" && value != null) params.set(name, value);
  const query = params.toString();
  history.replaceState(null, "", `#/${page}${query ? `?${query}` : ""}`);
  showTabs(page);
}

/** The address of a view, for links. */
export function addressOf(page, settings = {}) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, value]) => value !== "" && value != null));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

function showTabs(current) {
  // What was chosen on one page serves on the next.
  const { params } = address();
  const kept = Object.fromEntries(["run", "text"].filter((name) => params.get(name)).map((n) => [n, params.get(n)]));
  replace(document.getElementById("pages"), Object.entries(PAGES).map(([page, title]) => h("a", {
    href: addressOf(page, kept), "aria-current": page === current ? "page" : null,
  }, title)));
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { page, params } = address();
  showTabs(page);
  document.title = `${PAGES[page]} · octavo studio`;
  try {
    const found = await import(`/web/pages/${page}.js`);
    if (signal.aborted) return;
    replace(main, []);
    await found.show(main, params, signal);
  } catch (error) {
    if (!signal.aborted) replace(main, said(error));
  }
}

/** Models that are being read are shown with how far they have come, on every page. */
async function watchModels() {
  const place = document.getElementById("loading");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (!waiting.size || document.hidden) {
      if (place.firstChild) replace(place, []);
      continue;
    }
    try {
      const models = (await get("/api/models", null)).filter((one) => !one.ready);
      replace(place, models.map((one) => h("p", {}, `Reading ${one.run} `, h("progress", { max: 1, value: one.share }))));
    } catch { /* the page that waits for the model tells what is wrong */ }
  }
}

const waiting = new Set();
document.addEventListener("octavo:asking", (event) => waiting.add(event.detail));
document.addEventListener("octavo:answered", (event) => waiting.delete(event.detail));
window.addEventListener("hashchange", show);
show();
watchModels();
