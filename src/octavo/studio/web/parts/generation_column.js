// A continuation of the prompt by one decoding method, as the tokens arrive.

import { stream } from "/web/api.js";
import { errorMessage, h, replace } from "/web/dom.js";
import { bits, number } from "/web/parts/reading_details.js";
import { level, plain, quoted, walk } from "/web/parts/tokens.js";

export const METHODS = {
  greedy: ["Greedy", () => "Always the most probable token."],
  sample: ["Sampling", (now) => `At random, with seed ${now.seed}.`],
  beam: ["Beam search", (now) => `The most probable text found by a beam of ${now.width}.`],
};

/** A column; onchoose(i, tokens) is called when a token is chosen. */
export function generationColumn(method, onchoose) {
  let written = [];
  const [title, explain] = METHODS[method];
  const explanation = h("p", { class: "quiet" });
  const sum = h("p", { class: "sum", role: "status" });
  const about = h("p", { class: "quiet", "aria-live": "polite" });
  const others = h("div", {});
  const wrong = h("div", {});
  const prompt = h("span", { class: "prompt" });
  const text = walk(`${title}: the generated text; Enter shows the alternatives to a token`, (i) => {
    const one = written[i];
    replace(about, one && `${quoted(one.token)} ${bits(one.bits)} bits, rank ${number(one.rank)}`);
  }, (i) => onchoose(i, written));
  const place = h("section", { "aria-label": title }, h("h3", {}, title), explanation, text.place, sum, about, others, wrong);

  function count(state) {
    const total = written.reduce((all, one) => all + one.bits, 0);
    const each = written.length ? `, ${bits(total / written.length)} per token` : "";
    replace(sum, `${number(written.length)} tokens, ${bits(total)} bits${each}${state}`);
  }

  const colour = (one) => level(one.bits, one.bytes);

  async function take(line, signal) {
    if (line.all) {
      written = line.all;
      await text.fill(written.map((one) => one.token), written.map(colour), signal);
      text.place.prepend(prompt);
      replace(others, line.others?.length > 0 && h("details", {}, h("summary", {}, "The next best"),
        h("ol", { start: 2 }, line.others.map(([other, cost]) =>
          h("li", {}, h("code", {}, other), ` ${bits(cost)} bits`)))));
    }
    for (const one of line.add ?? []) {
      written.push(one);
      text.push(one.token, colour(one));
    }
  }

  return {
    place, method, text,
    get written() { return written; },
    /** Generate the text again; `onprogress` is called after each line. */
    async write(now, signal, onprogress = () => {}) {
      written = [];
      replace(explanation, explain(now));
      for (const one of [wrong, others, about]) replace(one, []);
      await text.fill([], [], signal);
      replace(prompt, now.prompt.length > 200 ? `… ${now.prompt.slice(-200)}` : now.prompt);
      text.place.prepend(prompt);
      text.place.setAttribute("aria-busy", "true");
      count(" …");
      try {
        for await (const line of stream("/api/write", { ...now, method }, signal)) {
          await take(line, signal);
          count(" …");
          onprogress();
        }
        count("");
      } catch (error) {
        count(signal.aborted ? ", stopped" : "");
        if (!signal.aborted) replace(wrong, errorMessage(error));
      } finally {
        text.place.removeAttribute("aria-busy");
      }
    },
  };
}

/** The last of a text, on one line. */
export const ending = (text, longest = 40) =>
  (text.length > longest ? `…${text.slice(-longest)}` : text).replaceAll("\n", "⏎");

export const joined = (tokens) => plain(tokens.map((one) => one.token).join("")).replaceAll("⏎\n", "⏎");
