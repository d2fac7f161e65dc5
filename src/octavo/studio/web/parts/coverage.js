// When to abstain: a threshold on the confidence, as a slider on the curve of accuracy over coverage.

import { h, replace } from "/web/dom.js";
import { Chart } from "/web/parts/chart.js";
import { percent } from "/web/parts/tokens.js";

/** The point of a curve [[threshold, coverage, accuracy], ...] at a threshold; null where nothing is answered. */
export function operatingPoint(curve, threshold) {
  const above = curve.filter(([least]) => least >= threshold);
  return above.length ? above.reduce((best, point) => (point[1] > best[1] ? point : best)) : null;
}

/**
 * A slider with its curve. `what` names the examples (“questions”), `count` is their number, `others` are further curves
 * { name: curve }; onchange(threshold) is called at every move. Without a curve there is only the slider.
 */
export function coverage({ curve, count, what, others = {}, threshold, onchange }) {
  const summary = h("p", { "aria-live": "polite", class: "operating-point" });
  const number = h("output", {});
  const slider = h("input", {
    type: "range", min: 0, max: 1, step: 0.005, value: threshold, "aria-label": "Least confidence",
    oninput: () => set(+slider.value),
  });
  const chart = new Chart(`Accuracy over coverage of ${what}`, (covered) => set(nearest(curve, covered / 100)[0]));
  const percentages = (points) => points.map(([, covered, right]) => [100 * covered, 100 * right]);
  const draw = (value) => {
    number.textContent = percent(value);
    slider.setAttribute("aria-valuetext", percent(value));
    if (!curve.length) return;
    const at = operatingPoint(curve, value), all = curve.at(-1);
    const measured = `of the ${count.toLocaleString("en")} ${what} it was measured on`;
    const named = Object.entries(others).filter(([, points]) => points.length > 1);
    chart.draw({
      series: [{ name: `all ${what}`, points: percentages(curve) },
        ...named.map(([name, points]) => ({ name, points: percentages(points) }))],
      x: "coverage, %", y: "accuracy, %", rangeX: [0, 100], rangeY: [0, 100], mark: at && [100 * at[1], 100 * at[2]],
    });
    replace(summary, [at
      ? `At a confidence of ${percent(value)} or more it answers ${percent(at[1])} ${measured}, ${percent(at[2])} of them `
        + "correctly. "
      : `At a confidence of ${percent(value)} or more it answers none ${measured}. `,
    `If it answers all, ${percent(all[2])} are correct.`]);
  };
  const set = (value) => {
    slider.value = value;
    draw(value);
    onchange(value);
  };
  draw(threshold);
  return h("div", { class: "coverage" },
    h("label", { class: "field wide" }, h("span", {}, "Answer only with a confidence of at least ", number), slider),
    summary, curve.length > 0 && chart.element);
}

const nearest = (curve, covered) =>
  curve.reduce((best, point) => (Math.abs(point[1] - covered) < Math.abs(best[1] - covered) ? point : best));
