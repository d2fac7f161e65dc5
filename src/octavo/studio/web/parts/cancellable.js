// Waiting: what takes long can be stopped where one waits for it.

import { h, latest, replace } from "/web/dom.js";

const PATIENCE = 400; // milliseconds until waiting is worth a word

/** Like `latest`: one task at a time in a place. `element` has a button that stops it; then it can be started again. */
export function patient(place, outer) {
  const ask = latest(place, outer);
  const element = h("p", { class: "waiting", role: "status" });
  const begin = (task) => ask(async (ended) => {
    const stop = h("button", { type: "button", onclick: () => end(task) }, "Stop");
    const timer = setTimeout(() => replace(element, [h("span", {}, "Computing … "), stop]), PATIENCE);
    try {
      await task(ended);
    } finally {
      clearTimeout(timer);
      if (!ended.aborted) replace(element, []);
    }
  });
  const end = (task) => ask(async () => {
    const again = h("button", { type: "button", onclick: () => begin(task) }, "Start again");
    replace(element, []);
    replace(place, h("p", {}, "Stopped. ", again));
    again.focus();
  });
  return { element, begin };
}
