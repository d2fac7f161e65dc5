// The tree of continuations, expanded node by node with a click or the right arrow.

import { post } from "/web/api.js";
import { errorMessage, h, replace } from "/web/dom.js";
import { bits } from "/web/parts/reading_details.js";
import { percent } from "/web/parts/tokens.js";

const BRANCHES = 4;
const EXPANDED = 8;

/**
 * The tree; onmove(path, text) is called with the selected node, oncontinue(path) with the node to continue from, and
 * onflip(paths) with the nodes that were opened or closed since it was loaded.
 */
export function continuationTree(onmove, oncontinue, onflip) {
  const flipped = new Set();
  let position = {};
  let lifetime = null;
  let current = null;
  const place = h("ul", { class: "tree", role: "tree", "aria-label": "Continuations", onkeydown: key });

  /** A node from the columns of a response; unknown children are requested when it is opened. */
  function makeNode(columns, at, above) {
    const node = { id: columns.ids[at], token: columns.tokens[at], p: columns.p[at], above,
      bits: columns.bits[at] + (above?.start ?? 0), open: false, children: [], known: false };
    columns.parents.forEach((parent, i) => { if (parent === at) node.children.push(makeNode(columns, i, node)); });
    node.known = node.children.length > 0;
    node.open = node.known;
    return node;
  }

  const path = (node) => (node.above ? [...path(node.above), node.id] : []);
  const text = (node) => (node.above ? text(node.above) + node.token : "");
  const level = (node) => (node.above ? level(node.above) + 1 : 0);

  function item(node) {
    node.fold = h("span", { class: "twist", "aria-hidden": "true" });
    node.group = h("ul", { role: "group" });
    node.row = h("div", { onclick: (event) => { select(node); if (event.target === node.fold) toggle(node); },
      ondblclick: () => toggle(node) }, node.fold, h("code", {}, node.token),
    h("span", { class: "share", "aria-hidden": "true" }, h("span", { style: { width: `${100 * node.p}%` } })),
    h("span", {}, percent(node.p)), h("small", { class: "quiet" }, `${bits(node.bits)} bits so far`));
    node.item = h("li", { role: "treeitem", tabindex: "-1", "aria-level": level(node), "aria-selected": "false" },
      node.row, node.group);
    node.item.node = node;
    drawn(node);
    return node.item;
  }

  function drawn(node) {
    replace(node.fold, node.open ? "▾" : "▸");
    node.item.setAttribute("aria-expanded", String(node.open));
    replace(node.group, node.open ? node.children.map((child) => child.item ?? item(child)) : []);
    node.group.hidden = !node.open;
  }

  async function toggle(node, open = !node.open) {
    if (open && !node.known) {
      node.item.setAttribute("aria-busy", "true");
      try {
        const columns = await post("/api/tree", { ...position, path: path(node), branches: BRANCHES, expanded: 1 }, lifetime);
        const root = makeNode(columns, 0, null);
        node.children = root.children;
        for (const child of node.children) {
          child.above = node;
          child.bits += node.bits;
        }
        node.known = true;
      } catch (error) {
        if (!lifetime.aborted) node.item.append(errorMessage(error));
        return;
      } finally {
        node.item.removeAttribute("aria-busy");
      }
    }
    if (node.open === open) return;
    node.open = open;
    drawn(node);
    const name = path(node).join(".");
    if (!flipped.delete(name)) flipped.add(name);
    onflip([...flipped].join("_"));
  }

  /** The node at the end of a path, where it has been loaded. */
  const find = (root, [id, ...rest]) =>
    (id == null ? root : root.children.filter((one) => one.id === id).map((one) => find(one, rest))[0]);

  function select(node, focus = true) {
    current?.item.setAttribute("tabindex", "-1");
    current?.item.setAttribute("aria-selected", "false");
    current = node;
    node.item.setAttribute("tabindex", "0");
    node.item.setAttribute("aria-selected", "true");
    if (focus) node.item.focus();
    onmove(path(node), text(node));
  }

  const visible = () => [...place.querySelectorAll("[role=treeitem]")].map((one) => one.node);

  async function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !current) return;
    const all = visible();
    const at = all.indexOf(current);
    const moves = {
      ArrowDown: () => select(all[Math.min(at + 1, all.length - 1)]), ArrowUp: () => select(all[Math.max(at - 1, 0)]),
      Home: () => select(all[0]), End: () => select(all.at(-1)), Enter: () => oncontinue(path(current)),
      ArrowRight: () => (current.open ? current.children[0] && select(current.children[0]) : toggle(current, true)),
      ArrowLeft: () => (current.open ? toggle(current, false) : current.above?.item && select(current.above)),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    await moves[event.key]();
  }

  return {
    place,
    get path() { return current ? path(current) : []; },
    /** Load it for a prompt, and open and close the nodes in `before`. */
    async refresh(now, signal, before = "") {
      const columns = await post("/api/tree", { ...now, branches: BRANCHES, expanded: EXPANDED }, signal);
      [position, lifetime, current] = [now, signal, null];
      const root = makeNode(columns, 0, null);
      replace(place, root.children.map(item));
      if (root.children.length) select(root.children[0], false);
      flipped.clear();
      const paths = before.split("_").filter(Boolean).map((name) => name.split(".").map(Number));
      for (const one of paths.sort((a, b) => a.length - b.length)) { // parents before their children
        const node = find(root, one);
        if (node?.item) await toggle(node);
      }
    },
  };
}
