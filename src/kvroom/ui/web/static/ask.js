/**
 * The one way to an answer: a path of `ui/web/routes.py` is asked, relative to the page, and JSON comes back.
 * Whether the server that sent this page answers, or Python in a worker of it, the page says at its root
 * (`data-core`, the worker), and nobody but this module knows.
 */

/**
 * @typedef {{path: string, body: unknown, type: string, lines: boolean, signal?: AbortSignal}} Asked
 *   `path` with the words after its "?"; `lines` whether the answer may come line by line
 */

const core = document.documentElement.dataset.core ? import("./core.js") : null;
// The page itself comes first.
core?.then(({ start }) => (document.readyState === "complete" ? start() : addEventListener("load", start, { once: true })));

/** What is said when no answer comes at all. */
export const GONE = core
  ? { error: { field: "Python", value: null, message: "does not answer", fix: "It runs inside this page: load the page again." } }
  : { error: { field: "server", value: null, message: "does not answer", fix: "Is kvroom serve still running?" } };

/** A refusal as a sentence. @param {import("./types").Failure["error"]} error */
export function refusal({ field, value, message, fix }) {
  const given = value == null ? "" : `${JSON.stringify(value).slice(0, 60)} `;
  return `${field}: ${given}${message}. ${fix}`;
}

/** The texts of an answer as they come, each whole JSON. @param {Asked} asked @returns {AsyncGenerator<string, void, void>} */
async function* texts(asked) {
  const units = document.documentElement.dataset.units ?? "gb"; // sentences come in the reader's unit
  const whole = { ...asked, path: `${asked.path}${asked.path.includes("?") ? "&" : "?"}units=${units}` };
  if (core) yield* (await core).texts(whole);
  else yield* served(whole);
}

/** @param {Asked} asked @returns {AsyncGenerator<string, void, void>} */
async function* served({ path, body, type, lines: inLines, signal }) {
  const reply = await fetch(path, {
    method: "POST",
    headers: { "content-type": type, ...(inLines ? { accept: "application/x-ndjson" } : {}) },
    body: body instanceof Blob ? body : JSON.stringify(body),
    signal,
  });
  if (!inLines || !reply.ok || !reply.body) {
    yield await reply.text();
    return;
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const parts = (rest + part.value).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {}); // whoever left is not waited for
  }
}

/**
 * The answer to a question. A file goes as it is, anything else as JSON; `planned` hears how many plans are made.
 * @param {string} path @param {unknown} body
 * @param {{signal?: AbortSignal, type?: string, planned?: (n: number) => void}} [how]
 */
export async function ask(path, body, { signal, type = "application/json", planned } = {}) {
  let last = "null";
  for await (const text of texts({ path, body, type, lines: planned !== undefined, signal })) {
    if (planned && text.startsWith('{"planned"')) planned(JSON.parse(text).planned);
    else last = text;
  }
  return JSON.parse(last);
}

/**
 * The lines of a long answer as they come; a refusal is one of `kind` "error". Leaving the loop, or aborting
 * `signal`, ends the work behind it.
 * @param {string} path @param {unknown} body @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* lines(path, body, signal) {
  for await (const text of texts({ path, body, type: "application/json", lines: true, signal })) {
    const told = JSON.parse(text);
    yield told.kind ? told : { kind: "error", ...told };
  }
}

/**
 * Plans: of one question or a list; whole answers, or those keys of them.
 * @param {unknown} body @param {{signal?: AbortSignal, parts?: string[]}} [how]
 */
export const post = (body, { signal, parts = [] } = {}) => ask(`api/plan?explain=1${parts.length ? `&parts=${parts.join(",")}` : ""}`, body, { signal });

/**
 * The question behind the address's "?", which a server has read before it sent the page and a host of files has
 * not; null where there is none, or it is read. `link` is any question's.
 * @param {string} link @returns {Promise<import("./types").Scenario | null>}
 */
export async function unread(link) {
  if (!core || location.search.length < 2) return null;
  const found = await ask(`api/take?s=${link.replace(/^.*s=/, "")}`, new Blob([location.search]), { type: "application/octet-stream" });
  if (found.error) throw new Error(refusal(found.error));
  return found.scenario;
}

/** A file as a question carries it. @param {File} file @returns {Promise<{name: string, base64: string}>} */
export const packed = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done({ name: file.name, base64: String(reader.result).split(",")[1] ?? "" });
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
