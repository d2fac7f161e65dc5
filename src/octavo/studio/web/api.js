// Requests to the studio's API. A request ends when its signal is aborted; the studio then stops computing, too.

/** An error in the studio's words, with its HTTP status. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function checked(response) {
  if (response.ok) return response;
  let message = "";
  try {
    message = (await response.json()).error;
  } catch { /* not from the studio */ }
  throw new ApiError(message || `the studio answered with status ${response.status}`, response.status);
}

/** The result of a network operation; a failure of the network is explained. */
async function reachable(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError("the studio does not answer; is it still running?", 0);
    throw error;
  }
}

async function request(path, options) {
  const key = Symbol(path);
  const announce = (name) => document.dispatchEvent(new CustomEvent(name, { detail: key }));
  if (options.method === "POST") announce("octavo:request");
  try {
    return await checked(await reachable(fetch(path, options)));
  } finally {
    announce("octavo:response");
  }
}

const send = (path, body, type, signal) =>
  request(path, { method: "POST", headers: { "content-type": type }, body, signal });
const sendJson = (path, value, signal) => send(path, JSON.stringify(value), "application/json", signal);

/** GET a JSON value. */
export const get = async (path, signal) => reachable((await request(path, { signal })).json());

/** POST a value, get a value. */
export const post = async (path, value, signal) => reachable((await sendJson(path, value, signal)).json());

/** POST a value, get bytes. */
export const postForBytes = async (path, value, signal) =>
  reachable((await sendJson(path, value, signal)).arrayBuffer());

/** POST a text file as it is, get a value. */
export const upload = async (path, file, signal) => reachable((await send(path, file, "text/plain", signal)).json());

/** POST a value; yields the values of the response as its lines arrive. */
export async function* stream(path, value, signal) {
  const response = await sendJson(path, value, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value: text } = await reachable(reader.read());
    const lines = (rest + (text ?? "")).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const item = JSON.parse(line);
      if (item.error) throw new ApiError(item.error, 400);
      yield item;
    }
    if (done) return;
  }
}
