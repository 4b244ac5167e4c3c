/**
 * Python in a worker: `ui/web/in_page.py` answers what the page asks. Its files lie in `python/`, packed, and are
 * kept by the browser under the site's version (what this module's address ends in), where the service worker
 * finds them too: nothing is fetched twice.
 */
const base = new URL("./", import.meta.url);
const store = `kvroom ${base.pathname} ${new URL(import.meta.url).search.slice(1)}`;
const network = self.fetch.bind(self);

/** A file of `python/`, unpacked. @param {string} name @param {string} type */
async function unpacked(name, type) {
  const address = new URL(`python/${name}.pack`, base).href;
  const cache = await self.caches?.open(store).catch(() => null);
  let reply = await cache?.match(address);
  if (!reply) {
    reply = await network(address);
    if (!reply.ok) throw new Error(`${address}: ${reply.status}`);
    await cache?.put(address, reply.clone()).catch(() => {}); // no room: fetched again next time
  }
  const stream = /** @type {ReadableStream<BufferSource>} */ (reply.body).pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream, { headers: { "content-type": type } });
}

// Pyodide fetches its own files: it is given them unpacked, whatever a host makes of packed ones.
self.fetch = (address, how) => {
  const name = String(address).split("/").pop() ?? "";
  if (name === "pyodide.asm.wasm") return unpacked(name, "application/wasm");
  if (name === "library.zip") return unpacked(name, "application/zip");
  return network(address, how);
};

/** The files in a zip that only stores them. @param {ArrayBuffer} zip */
function* entries(zip) {
  const view = new DataView(zip);
  const end = zip.byteLength - 22; // where nobody has put a remark
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [size, start] = [view.getUint32(at + 24, true), view.getUint32(at + 42, true)];
    const [name, extra, remark] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const begin = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    yield { name: new TextDecoder().decode(new Uint8Array(zip, at + 46, name)), bytes: new Uint8Array(zip, begin, size) };
    at += 46 + name + extra + remark;
  }
}

/** Ids of answers under way: the last one works, the others wait in a pause until it is over. @type {number[]} */
const under = [];
/** Who waits for that. @type {(() => void)[]} */
const waiting = [];

/** A pause of one answer, in which what was sent meanwhile comes in. @param {number} id */
async function breathe(id) {
  await new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => (port1.close(), done(null));
    port2.postMessage(null);
  });
  while (under[under.length - 1] !== id) await new Promise((done) => waiting.push(() => done(null)));
}

const IDLE_MS = 100;
const BRIDGE = `
from pyodide.ffi import can_run_sync, run_sync
from kvroom.ui.web.in_page import PageDesk

desk = PageDesk()

def answer(path, body, lines, send, breathe, read):
    def pause():
        if can_run_sync():
            run_sync(breathe())
        return read()
    desk.answer(path, body.to_bytes(), lines, send, pause)
answer, desk.load
`;

/** Ids of questions that nobody waits for. @type {Set<number>} */
const left = new Set();
const python = begin();
python.catch((error) => postMessage({ failed: String(error) }));

async function begin() {
  const [{ loadPyodide }, modules] = await Promise.all([import(new URL("python/pyodide.mjs", base).href), unpacked("kvroom.zip", "application/zip").then((reply) => reply.arrayBuffer())]);
  const folder = new URL("python/", base).href;
  const pyodide = await loadPyodide({
    indexURL: folder,
    packageBaseUrl: folder,
    stdLibURL: `${folder}library.zip`,
  });
  const place = pyodide.runPython("import site; site.getsitepackages()[0]");
  const folders = new Set();
  for (const { name, bytes } of entries(modules)) {
    const path = `${place}/${name}`;
    const home = path.replace(/\/[^/]*$/, "");
    if (!folders.has(home)) pyodide.FS.mkdirTree(home);
    folders.add(home);
    pyodide.FS.writeFile(path, bytes, { canOwn: true }); // not copied: all lie in the one buffer
  }
  const [answer, load] = pyodide.runPython(BRIDGE);
  postMessage({ ready: true, pauses: "Suspending" in WebAssembly });
  setTimeout(() => idle(load), IDLE_MS);
  return answer;
}

/** What the next questions are likely to need is loaded while there are none. @param {() => boolean} load */
function idle(load) {
  if (under.length || load()) setTimeout(() => idle(load), IDLE_MS);
}

self.addEventListener("message", async ({ data }) => {
  if (data.left !== undefined) {
    left.add(data.left);
    return;
  }
  const { id, path, body, lines } = data;
  try {
    const answer = await python;
    if (left.delete(id)) return;
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body);
    const send = (/** @type {string} */ text) => postMessage({ id, text });
    under.push(id);
    await answer.callPromising(path, bytes, lines, send, () => breathe(id), () => !left.has(id));
    postMessage({ id, over: true });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
  if (under.includes(id)) under.splice(under.indexOf(id), 1);
  for (const done of waiting.splice(0)) done();
  left.delete(id);
});
