// A text read twice by a model that learns while it reads: the scores of both readings, a curve along the text, and the
// second reading token by token, beside fixed models that learn nothing from it.

import { post } from "/web/api.js";
import { errorMessage, h, replace } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { bits } from "/web/parts/reading_details.js";
import { plainTable } from "/web/parts/table.js";
import { coloured, legend, level, quoted, walk } from "/web/parts/tokens.js";

const COLOURS = 6;
const WHAT_IS_LEARNT = "This model learns while it reads. It has read the text twice in a row, with its state carried on: "
  + "at the first reading it has learnt from what stood before a token, at the second from the whole text. The fixed "
  + "models learn nothing; what they gain at the second reading is what a running state or a context window still holds.";

/** Fill `place` with what learning does; `details(i)` gives what is shown of a token below its costs. Returns the costs,
 * or null where they could not be computed. */
export async function adaptationView(place, request, tokens, signal) {
  replace(place, [h("h2", {}, "Learning while it reads"),
    h("p", { class: "quiet", role: "status" }, "The text is read a second time …")]);
  let data;
  try {
    data = await post("/api/read/adaptation", request, signal);
  } catch (error) {
    if (!signal.aborted) replace(place, [h("h2", {}, "Learning while it reads"), errorMessage(error)]);
    return null;
  }
  const chart = new Chart("Bits per byte along the text");
  const card = h("div", { class: "card about", "aria-live": "polite" },
    h("p", { class: "quiet" }, "Point at a token, or walk through them with the arrow keys."));
  const second = walk("The text at the second reading: the arrow keys move", (i) =>
    replace(card, [h("p", {}, h("b", {}, quoted(tokens[i]))), ...tokenCosts(data, i)]));
  replace(place, [
    h("h2", {}, "Learning while it reads"), h("p", {}, WHAT_IS_LEARNT),
    plainTable("Bits per byte of both readings", ["bits per byte", "first reading", "second reading", "saved"],
      data.readings.map((one) => [one.name, ...one.bits_per_byte.map(inDigits), saved(one.bits_per_byte)])),
    h("p", { class: "quiet small" }, `How it learns: ${data.policy}.`),
    data.curve_bytes.length > 1 && chart.element,
    data.truncated && h("p", { class: "quiet" }, `Only the first ${data.bytes.length} tokens are read twice.`),
    h("h2", {}, "The second reading"), coloured(), legend(), h("div", { class: "beside" }, second.place, card),
  ]);
  chart.draw({ series: series(data), x: "bytes of the text", y: "bits per byte so far" });
  const costs = data.readings[0].second;
  await second.fill(tokens.slice(0, costs.length), costs.map((one, i) => level(one, data.bytes[i])), signal);
  return data;
}

/** What a token costs each model, at both readings. */
export function tokenCosts(data, i) {
  if (!data || i >= data.bytes.length) return [];
  return [h("table", { class: "twice" }, h("caption", {}, "bits, when the text is read"),
    h("thead", {}, h("tr", {}, h("td", {}), ["first", "again"].map((name) => h("th", { scope: "col", class: "r" }, name)))),
    h("tbody", {}, data.readings.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name),
      [one.first[i], one.second[i]].map((cost) => h("td", { class: "r" }, bits(cost)))))))];
}

const inDigits = (value) => (value == null ? "∞" : value.toFixed(4));

function saved([first, second]) {
  if (!first || second == null) return "–";
  return `${(Math.round(1000 * (1 - second / first)) / 10 + 0).toFixed(1)} %`;
}

function series(data) {
  const line = (name, values, colour) =>
    ({ name, colour: colour % COLOURS, points: values.map((value, i) => [data.curve_bytes[i], value]) });
  const [learning, ...fixed] = data.readings;
  return [line(`${learning.name}, first reading`, learning.curve, 0),
    ...fixed.map((one, i) => line(one.name, one.curve, i + 2)),
    line(`${learning.name}, second reading`, learning.second_curve, 1)];
}
