// The exercises: the booklet, what can be tried with numbers of one's own, and the grader.

import { h, replace } from "/web/dom.js";
import { addressOf } from "/web/main.js";
import { showBooklet } from "/web/parts/booklet.js";
import { showGrader } from "/web/parts/grader.js";
import { showPlayground } from "/web/parts/playground.js";

const VIEWS = {
  booklet: ["Booklet", showBooklet], play: ["Try it", showPlayground], grade: ["Grade answers", showGrader],
};

export async function show(main, params, signal) {
  const view = params.get("view") in VIEWS ? params.get("view") : "booklet";
  const place = h("div");
  main.append(h("h1", {}, "Exercises"), h("nav", { "aria-label": "Parts of the exercises", class: "exercise-views" },
    Object.entries(VIEWS).map(([name, [title]]) => h("a", {
      href: addressOf("exercises", { view: name === "booklet" ? "" : name }),
      "aria-current": name === view ? "page" : null,
    }, title))), place);
  replace(place, h("p", { class: "quiet", role: "status" }, "Opening …"));
  await VIEWS[view][1](place, params, signal);
}
