import { get } from "/web/api.js";
import { h } from "/web/dom.js";

export async function show(main, params, signal) {
  const runs = await get("/api/runs", signal);
  main.append(h("h1", {}, "Runs"), h("ul", {}, runs.map((one) => h("li", {}, one.run))));
}
