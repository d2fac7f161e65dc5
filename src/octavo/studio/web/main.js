// Which page is shown: the address after # says it, `#/read?run=kn7&text=To+be`, so every view can be shared.

import { errorMessage, h, replace } from "/web/dom.js";
import { get } from "/web/api.js";
import { PAGES, RENAMED } from "/web/pages.js";

const POLL_MS = 400; // between two readings of the progress of loading models
const FAST_WRITES = 60; // of addresses in ten seconds, before they are delayed
const DELAYED_WRITE_MS = 100;
const main = document.getElementById("main");
let pendingAddress = null;
let writeTimer = 0;
let recentWrites = 0; // of addresses, in the last ten seconds
let shownPage = new AbortController();

/** The page and its settings, from the address. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const page = RENAMED[path] ?? path;
  return { page: page in PAGES ? page : "runs", params: new URLSearchParams(query) };
}

/** Write a view's settings into the address, without showing the page again. Empty ones are left out. */
export function remember(page, settings) {
  if (page !== address().page) return; // it is not shown any more
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) if (value !== "" && value != null) params.set(name, value);
  const query = params.toString();
  pendingAddress = `#/${page}${query ? `?${query}` : ""}`;
  showTabs(page, params);
  if (!writeTimer) writeAddress();
}

/** Browsers take 200 addresses in ten seconds, and a slider makes more: after the first few, they are delayed. */
function writeAddress() {
  writeTimer = 0;
  if (pendingAddress === null) return;
  history.replaceState(null, "", pendingAddress);
  pendingAddress = null;
  recentWrites += 1;
  setTimeout(() => { recentWrites -= 1; }, 10_000);
  if (recentWrites > FAST_WRITES) writeTimer = setTimeout(writeAddress, DELAYED_WRITE_MS);
}

/** The address of a view, for links. */
export function addressOf(page, settings = {}) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, value]) => value !== "" && value != null));
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

const tabs = Object.entries(PAGES).map(([page, title]) => h("a", { "data-page": page }, title));
document.getElementById("pages").append(...tabs);

/** The run and the text that were chosen on one page are kept on the next. The links stay, and the focus on one. */
function showTabs(current, params) {
  const common = Object.fromEntries(["run", "text"].map((name) => [name, params.get(name)]));
  for (const tab of tabs) {
    tab.href = addressOf(tab.dataset.page, common);
    if (tab.dataset.page === current) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}

async function show(event) {
  shownPage.abort();
  pendingAddress = null; // of the page before
  shownPage = new AbortController();
  const { signal } = shownPage;
  const { page, params } = address();
  showTabs(page, params);
  document.title = `${PAGES[page]} · octavo studio`;
  try {
    const module = await import(`/web/pages/${page}.js`).catch((error) => {
      if (!(error instanceof TypeError)) throw error; // it was loaded, and has a bug
      throw new Error("the studio does not answer; is it still running? Reload this page when it is.");
    });
    if (signal.aborted) return;
    replace(main, []);
    if (event && document.activeElement === document.body) main.focus(); // the link that led here is gone
    await module.show(main, params, signal);
  } catch (error) {
    if (!signal.aborted) replace(main, errorMessage(error));
  }
}

/** The progress of models that are loading, on every page. */
async function watchModels() {
  const place = document.getElementById("loading");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!openRequests.size || document.hidden) {
      if (place.firstChild) replace(place, []);
      continue;
    }
    try {
      const models = (await get("/api/models", null)).filter((one) => !one.ready);
      replace(place, models.map((one) => h("p", {}, `Loading ${one.run} `, h("progress", { max: 1, value: one.progress }))));
    } catch { /* the page that waits for the model shows the error */ }
  }
}

const openRequests = new Set();
document.addEventListener("octavo:request", (event) => openRequests.add(event.detail));
document.addEventListener("octavo:response", (event) => openRequests.delete(event.detail));
window.addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // an address is a view here
  main.focus();
});
show();
watchModels();
