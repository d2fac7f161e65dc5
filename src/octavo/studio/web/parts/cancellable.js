// A long task that can be cancelled.

import { h, latest, replace } from "/web/dom.js";

const SHOW_AFTER_MS = 400; // that a task is shown as running

/** Like `latest`: one task at a time in a place. `element` has a button that stops it; then it can be started again. */
export function cancellable(place, outer) {
  const run = latest(place, outer);
  const element = h("p", { class: "waiting", role: "status" });
  const start = (task) => run(async (ended) => {
    const stop = h("button", { type: "button", onclick: () => stopTask(task) }, "Stop");
    const timer = setTimeout(() => replace(element, [h("span", {}, "Computing … "), stop]), SHOW_AFTER_MS);
    try {
      await task(ended);
    } finally {
      clearTimeout(timer);
      if (!ended.aborted) replace(element, []);
    }
  });
  const stopTask = (task) => run(async () => {
    const again = h("button", { type: "button", onclick: () => start(task) }, "Start again");
    replace(element, []);
    replace(place, h("p", {}, "Stopped. ", again));
    again.focus();
  });
  return { element, start };
}
