// The attention of a vision transformer: each head's map over the image, the rollout of all layers, and the classes.

import { post } from "/web/api.js";
import { field, h, latest, replace } from "/web/dom.js";
import { rgb, whenScheme } from "/web/parts/colours.js";
import { percent } from "/web/parts/tokens.js";

const SIDE = 132; // pixels of a drawn image
const LARGEST = 2_200_000; // bytes of a file

/** The tab of an image model. */
export async function imageView(place, page, signal) {
  const { settings, remember, about } = page;
  const stage = h("div", {});
  const draw = latest(stage, signal);
  const last = about.held_out - 1;
  const number = h("input", {
    type: "number", min: 0, max: last, value: settings.image ?? 0, onchange: () => go(Number(number.value)),
  });
  const file = h("input", { type: "file", accept: "image/png,image/jpeg", onchange: () => send(file.files[0]) });

  function go(n) {
    const image = Math.min(last, Math.max(0, Math.round(n) || 0));
    number.value = image;
    remember({ image: image || "" });
    draw((ended) => show({ image }, ended));
  }

  function send(chosen) {
    if (!chosen) return;
    draw(async (ended) => {
      if (chosen.size > LARGEST) throw new Error(`the file has ${(chosen.size / 1e6).toFixed(1)} MB: 2.2 MB at most`);
      await show({ picture: await inBase64(chosen) }, ended);
    });
  }

  async function show(what, ended) {
    const data = await post("/api/inspect/image", { run: settings.run, ...what }, ended);
    const picture = new Image();
    picture.src = data.picture;
    await picture.decode();
    replace(stage, seen(data, picture, signal));
  }

  replace(place, [
    h("div", { class: "bar" }, last >= 0 && [field("Held-out image", number, `0 to ${last}`),
      h("button", { type: "button", onclick: () => go(Number(number.value) - 1) }, "← before"),
      h("button", { type: "button", onclick: () => go(Number(number.value) + 1) }, "next →")],
    field(last >= 0 ? "Or a picture" : "A picture", file, "PNG or JPEG; it is brought to the model's size")),
    stage,
  ]);
  const first = Math.min(last, Math.max(0, Number(settings.image) || 0));
  if (last >= 0) await draw((ended) => show({ image: first }, ended));
  else replace(stage, h("p", { class: "quiet" }, "Its own images have no name that octavo knows: choose a picture."));
}

const inBase64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => reject(new Error("the file could not be read"));
  reader.readAsDataURL(file);
});

function seen(data, picture, signal) {
  const who = data.token ? "the class's token" : "an average patch";
  const layers = [...new Set(data.heads.map((one) => one.layer))];
  const thumb = (title, below, map) => drawing(data, picture, title, below, map);
  return [
    h("div", { class: "sights" },
      thumb("the image", data.truth ? `it is ${data.truth}` : `${data.width} × ${data.height}`),
      thumb("rollout", "all layers", data.rollout),
      h("table", { class: "chances" },
        h("thead", {}, h("tr", {}, h("th", {}, "it says"), h("th", { class: "r" }, "probability"))),
        h("tbody", {}, data.classes.slice(0, 5).map((one) => h("tr", {}, h("td", {}, one.label),
          h("td", { class: "r" }, percent(one.p))))))),
    h("p", { class: "quiet" }, `Colour is attention: full for the patch that ${who} attends to most, none for the one it `
      + "attends to least. Below each head: its entropy in bits, and its mean distance in patches. Rollout follows "
      + "all layers: each keeps half of what it had and adds what its heads see. Attention is not "
      + "yet the reason for an answer."),
    layers.map((layer) => [
      h("h3", {}, `Layer ${layer} of ${data.layers}`),
      h("div", { class: "sights" }, data.heads.filter((one) => one.layer === layer).map((one) =>
        thumb(`head ${one.head}`, `${one.entropy.toFixed(1)} bits, ${one.distance.toFixed(1)} away`, one.seen))),
    ]),
    data.groups.length > 0 && [
      h("h3", {}, "Channel attention"),
      h("p", { class: "quiet" }, "In these layers channels attend to channels over the whole image, in groups: a row "
        + "attends to the columns."),
      h("div", { class: "sights" }, data.groups.map((one) => channels(one, signal))),
    ],
  ];
}

/** The image with a map over it: more colour where there is more attention. */
function drawing(data, picture, title, below, map) {
  const canvas = h("canvas", { role: "img", "aria-label": `${title}: ${below}${map ? `; ${strongest(map)}` : ""}` });
  const high = Math.round((SIDE * data.height) / data.width);
  [canvas.width, canvas.height] = [SIDE * 2, high * 2];
  canvas.style.width = `${SIDE}px`;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  if (map) overlay(context, map, canvas.width, canvas.height);
  return h("figure", { class: "sight" }, canvas, h("figcaption", {}, h("b", {}, title), h("br"), below));
}

function overlay(context, map, wide, high) {
  const every = map.flat();
  const [least, most] = [Math.min(...every), Math.max(...every)];
  const [across, down] = [wide / map[0].length, high / map.length];
  map.forEach((row, y) => row.forEach((value, x) => {
    const share = most > least ? (value - least) / (most - least) : 0;
    context.fillStyle = `rgb(240 120 20 / ${(0.75 * share).toFixed(3)})`;
    context.fillRect(Math.floor(x * across), Math.floor(y * down), Math.ceil(across), Math.ceil(down));
  }));
}

function strongest(map) {
  const best = map.flatMap((row, y) => row.map((value, x) => [value, y, x])).sort((a, b) => b[0] - a[0])[0];
  return `most at row ${best[1] + 1}, column ${best[2] + 1} of ${map.length} by ${map[0].length} patches`;
}

function channels(one, signal) {
  const count = one.map.length;
  const canvas = h("canvas", {
    width: count, height: count, role: "img",
    "aria-label": `layer ${one.layer}, group ${one.group}: a channel takes ${percent(one.itself)} of itself`,
    style: { width: `${SIDE}px`, height: `${SIDE}px`, imageRendering: "pixelated" },
  });
  const paint = () => {
    const [paper, main] = [rgb("--paper"), rgb("--main")];
    const pixels = new ImageData(count, count);
    const most = Math.max(...one.map.flat());
    one.map.flat().forEach((value, n) => {
      const share = Math.sqrt(value / most);
      paper.forEach((low, i) => { pixels.data[4 * n + i] = low + (main[i] - low) * share; });
      pixels.data[4 * n + 3] = 255;
    });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
  };
  paint();
  whenScheme(paint, signal);
  return h("figure", { class: "sight" }, canvas, h("figcaption", {},
    h("b", {}, `layer ${one.layer}, group ${one.group}`), h("br"), `${percent(one.itself)} of itself`));
}
