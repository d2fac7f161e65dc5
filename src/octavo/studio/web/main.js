// Which page is shown: the address after # says it, `#/read?run=kn7&text=To+be`, so every view can be shared.

import { h, replace, said } from "/web/dom.js";
import { get } from "/web/api.js";
import { PAGES, RENAMED } from "/web/pages.js";

const POLL = 400; // milliseconds between looks at how far a model has been read
const AT_ONCE = 60; // addresses in ten seconds that are written at once
const OFTEN = 100; // milliseconds between those after them
const main = document.getElementById("main");
let wanted = null; // the address to be written
let due = 0; // the timer that will write it
let written = 0; // addresses in the last ten seconds
let leaving = new AbortController();

/** The page and its settings, from the address. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const page = RENAMED[path] ?? path;
  return { page: page in PAGES ? page : "runs", params: new URLSearchParams(query) };
}

/** Write a view's settings into the address, without showing the page anew. Empty ones are left out. */
export function remember(page, settings) {
  if (page !== address().page) return; // one that was left has nothing to say any more
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) if (value !== "" && value != null) params.set(name, value);
  const query = params.toString();
  wanted = `#/${page}${query ? `?${query}` : ""}`;
  showTabs(page, params);
  if (!due) write();
}

/** Browsers take 200 addresses in ten seconds. A slider makes more: after the first few, only now and then the last. */
function write() {
  due = 0;
  if (wanted === null) return;
  history.replaceState(null, "", wanted);
  wanted = null;
  written += 1;
  setTimeout(() => { written -= 1; }, 10_000);
  if (written > AT_ONCE) due = setTimeout(write, OFTEN);
}

/** The address of a view, for links. */
export function addressOf(page, settings = {}) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, value]) => value !== "" && value != null));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

const tabs = Object.entries(PAGES).map(([page, title]) => h("a", { "data-page": page }, title));
document.getElementById("pages").append(...tabs);

/** What was chosen on one page serves on the next. The links themselves stay, and so does the focus on one. */
function showTabs(current, params) {
  const kept = Object.fromEntries(["run", "text"].map((name) => [name, params.get(name)]));
  for (const tab of tabs) {
    tab.href = addressOf(tab.dataset.page, kept);
    if (tab.dataset.page === current) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}

async function show(came) {
  leaving.abort();
  wanted = null; // that of the page before
  leaving = new AbortController();
  const { signal } = leaving;
  const { page, params } = address();
  showTabs(page, params);
  document.title = `${PAGES[page]} · octavo studio`;
  try {
    const found = await import(`/web/pages/${page}.js`).catch((error) => {
      if (!(error instanceof TypeError)) throw error; // it came, and is wrong
      throw new Error("the studio does not answer; is it still running? Reload this page when it is.");
    });
    if (signal.aborted) return;
    replace(main, []);
    if (came && document.activeElement === document.body) main.focus(); // what led here is gone
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
      replace(place, models.map((one) => h("p", {}, `Loading ${one.run} `, h("progress", { max: 1, value: one.progress }))));
    } catch { /* the page that waits for the model tells what is wrong */ }
  }
}

const waiting = new Set();
document.addEventListener("octavo:asking", (event) => waiting.add(event.detail));
document.addEventListener("octavo:answered", (event) => waiting.delete(event.detail));
window.addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // an address is a view here
  main.focus();
});
show();
watchModels();
