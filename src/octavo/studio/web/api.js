// Asking the studio. A request ends when its signal is aborted; the studio then stops computing, too.

/** What went wrong, in the studio's words. */
export class Mistake extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function answered(response) {
  if (response.ok) return response;
  let told = "";
  try {
    told = (await response.json()).error;
  } catch { /* not from the studio */ }
  throw new Mistake(told || `the studio answered with status ${response.status}`, response.status);
}

/** What is asked over the network, and where that fails, words for it. */
async function heard(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof TypeError) throw new Mistake("the studio does not answer; is it still running?", 0);
    throw error;
  }
}

async function ask(path, options) {
  const key = Symbol(path);
  const tell = (name) => document.dispatchEvent(new CustomEvent(name, { detail: key }));
  if (options.method === "POST") tell("octavo:asking");
  try {
    return await answered(await heard(fetch(path, options)));
  } finally {
    tell("octavo:answered");
  }
}

/** The JSON at an address of the studio. */
export async function get(path, signal) {
  return heard((await ask(path, { signal })).json());
}

/** Send a value, get a value. */
export async function post(path, value, signal, method = "POST") {
  const headers = { "content-type": "application/json" };
  return heard((await ask(path, { method, headers, body: JSON.stringify(value), signal })).json());
}

/** Send a value, get bytes. */
export async function bytes(path, value, signal) {
  const headers = { "content-type": "application/json" };
  return heard((await ask(path, { method: "POST", headers, body: JSON.stringify(value), signal })).arrayBuffer());
}

/** Send a file as it is, get a value. */
export async function send(path, file, signal) {
  const headers = { "content-type": "text/plain" };
  return heard((await ask(path, { method: "POST", headers, body: file, signal })).json());
}

/** Send a value; yield the values of the answer as its lines come. */
export async function* stream(path, value, signal) {
  const headers = { "content-type": "application/json" };
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify(value), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value: text } = await heard(reader.read());
    const lines = (rest + (text ?? "")).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const item = JSON.parse(line);
      if (item.error) throw new Mistake(item.error, 400);
      yield item;
    }
    if (done) return;
  }
}
