/**
 * The page's own Python: a worker that answers as a server would. It starts once the page stands, and anew when
 * it has failed. The root element tells how far it is (`data-python`: starting, ready, failed).
 */
import { known } from "./nearby.js";

/** @typedef {import("./ask.js").Asked} Asked */
/** @typedef {{id: number, path: string, body: ArrayBuffer | string, lines: boolean}} Message */
/** @typedef {{message: Message, texts: string[], over: boolean, error: Error | null, wake: () => void}} Open */

const root = document.documentElement;
const address = /** @type {string} */ (root.dataset.core);
/** What is asked and not yet answered, the oldest first. @type {Map<number, Open>} */
const open = new Map();
/** @type {Worker | null} */
let worker = null;
/** Whether a job lets go when nobody reads it any more; else its worker has to be ended. */
let pauses = false;
let last = 0;

/** Say how far Python is. @param {"starting" | "ready" | "failed"} state */
function stand(state) {
  root.dataset.python = state;
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-at]"))) part.hidden = part.dataset.at !== state;
}
document.getElementById("start-again")?.addEventListener("click", start);

/** Start Python, and ask it what is open. */
export function start() {
  if (worker) return;
  stand("starting");
  worker = new Worker(new URL(address, document.baseURI), { type: "module" });
  worker.addEventListener("message", ({ data }) => heard(data));
  worker.addEventListener("error", (event) => fail(event.message || "Python did not start"));
  for (const { message } of open.values()) worker.postMessage(message);
}

/** @param {any} told */
function heard(told) {
  if (told.ready) {
    pauses = told.pauses;
    stand("ready");
    navigator.serviceWorker?.register(new URL("sw.js", document.baseURI)).catch(() => {}); // it works without
  }
  if (told.failed) fail(told.failed);
  const one = open.get(told.id);
  if (!one) return;
  if (told.text !== undefined) one.texts.push(told.text);
  if (told.over) end(one);
  one.wake();
}

/** @param {Open} one @param {Error | null} [error] */
function end(one, error = null) {
  open.delete(one.message.id);
  one.over = true;
  one.error = error;
  one.wake();
}

/** @param {string} why */
function fail(why) {
  console.warn(why);
  stand("failed");
  worker?.terminate();
  worker = null;
  for (const one of [...open.values()]) end(one, new Error(why));
}

/** Nobody reads this answer any more. @param {Open} one */
function leave(one) {
  const { id } = one.message;
  if (!open.has(id)) return;
  const first = open.keys().next().value === id;
  end(one);
  if (pauses || !first || root.dataset.python !== "ready") worker?.postMessage({ left: id });
  else {
    worker?.terminate();
    worker = null;
    start();
  }
}

/** The texts of an answer as they come, each whole JSON. @param {Asked} asked @returns {AsyncGenerator<string, void, void>} */
export async function* texts({ path, body, lines, signal }) {
  signal?.throwIfAborted();
  if (root.dataset.python !== "ready") {
    const text = await known(path, body);
    if (text) {
      yield text;
      return;
    }
  }
  const sent = body instanceof Blob ? await body.arrayBuffer() : JSON.stringify(body ?? null);
  signal?.throwIfAborted();
  /** @type {Open} */
  const one = { message: { id: ++last, path, body: sent, lines }, texts: [], over: false, error: null, wake() {} };
  open.set(last, one);
  if (worker) worker.postMessage(one.message);
  else start();
  const aborted = () => leave(one);
  signal?.addEventListener("abort", aborted);
  try {
    while (!one.over || one.texts.length) {
      const text = one.texts.shift();
      if (text === undefined) await new Promise((woken) => (one.wake = () => woken(null)));
      else yield text;
      signal?.throwIfAborted();
    }
    if (one.error) throw one.error;
  } finally {
    signal?.removeEventListener("abort", aborted);
    leave(one);
  }
}
