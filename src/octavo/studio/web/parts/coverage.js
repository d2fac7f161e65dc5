// When to abstain: a threshold on the confidence, as a slider on the curve of coverage and accuracy.

import { chart } from "/web/parts/curve.js";
import { percent } from "/web/parts/tokens.js";
import { h, replace } from "/web/dom.js";

/** The point of a curve [[threshold, coverage, accuracy], ...] where one works; null where nothing is answered. */
export function operating(curve, threshold) {
  const above = curve.filter(([least]) => least >= threshold);
  return above.length ? above.reduce((best, one) => (one[1] > best[1] ? one : best)) : null;
}

/**
 * A slider with its curve. `what` are those that were asked (“questions”), `count` how many, `others` further curves
 * { name: curve }; onchange(threshold) is called at every move. Without a curve there is only the slider.
 */
export function coverage({ curve, count, what, others = {}, threshold, onchange }) {
  const figure = h("div"), told = h("p", { "aria-live": "polite", class: "operating-point" });
  const number = h("output", {});
  const slider = h("input", {
    type: "range", min: 0, max: 1, step: 0.005, value: threshold, "aria-label": "Least confidence",
    oninput: () => set(+slider.value),
  });
  const draw = (value) => {
    number.textContent = percent(value);
    slider.setAttribute("aria-valuetext", percent(value));
    if (!curve.length) return;
    const at = operating(curve, value), all = curve.at(-1);
    const those = `of the ${count.toLocaleString("en")} ${what} it was measured on`;
    const named = Object.entries(others).filter(([, points]) => points.length > 1);
    const shares = (points) => points.map(([, covered, right]) => [100 * covered, 100 * right]);
    replace(figure, chart({
      series: [{ name: `all ${what}`, points: shares(curve) },
        ...named.map(([name, points]) => ({ name, points: shares(points) }))],
      axes: ["answered, %", "right, %"], range: [[0, 100], [0, 100]], mark: at && [100 * at[1], 100 * at[2]],
      label: `How many ${what} are answered, and how many of those rightly`,
      onpick: ([covered]) => set(nearest(curve, covered / 100)[0]),
    }));
    replace(told, [at
      ? `At ${percent(value)} or surer it answers ${percent(at[1])} ${those}, ${percent(at[2])} of them rightly. `
      : `At ${percent(value)} or surer it answers none ${those}. `,
    `Answering all, ${percent(all[2])} are right.`]);
  };
  const set = (value) => {
    slider.value = value;
    draw(value);
    onchange(value);
  };
  draw(threshold);
  return h("div", { class: "coverage" },
    h("label", { class: "field wide" }, h("span", {}, "Answer only with a confidence of at least ", number), slider),
    told, figure);
}

const nearest = (curve, covered) =>
  curve.reduce((best, one) => (Math.abs(one[1] - covered) < Math.abs(best[1] - covered) ? one : best));
