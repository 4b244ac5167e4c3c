/**
 * Keeps the whole site, so that it opens without a network. Before this stands KEPT: the site's version and its
 * files. A new version is fetched whole beside the old one, and taken once no tab shows the old one.
 */
/* global KEPT */

// @ts-ignore: put before this script
const kept = /** @type {{version: string, files: string[]}} */ (KEPT);
const worker = /** @type {any} */ (self);
const prefix = `kvroom ${new URL(worker.registration.scope).pathname} `;
const store = prefix + kept.version;

async function fill() {
  const cache = await caches.open(store);
  const missing = async (/** @type {string} */ file) => {
    const address = new URL(file, worker.registration.scope).href;
    if (await cache.match(address)) return;
    const reply = await fetch(address, { cache: "no-cache" });
    if (!reply.ok) throw new Error(`${address}: ${reply.status}`);
    await cache.put(address, reply);
  };
  await Promise.all(kept.files.map(missing));
}

async function clear() {
  const old = (await caches.keys()).filter((name) => name.startsWith(prefix) && name !== store);
  await Promise.all(old.map((name) => caches.delete(name)));
  await worker.clients.claim();
}

/** @param {Request} request */
async function found(request) {
  const cache = await caches.open(store);
  return (await cache.match(request, { ignoreSearch: true })) ?? fetch(request);
}

worker.addEventListener("install", (/** @type {any} */ event) => event.waitUntil(fill()));
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(clear()));
worker.addEventListener("fetch", (/** @type {any} */ event) => {
  if (event.request.method === "GET" && event.request.url.startsWith(worker.registration.scope)) event.respondWith(found(event.request));
});
