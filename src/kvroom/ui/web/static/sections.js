/** The lower sections: each is loaded and asks when it comes near, and follows the question. */
import { GONE, ask, refusal } from "./ask.js";
import { Near } from "./near.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types").Scenario} Scenario */

/** Longest file sent; of a model's file its first bytes hold the header. */
const MOST_BYTES = 2 ** 25;
/** Levers wait until the question stands. */
const REST_MS = 200;

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

/**
 * @typedef {{speak: (text: string) => void, replays: any, machines: string[], other: () => Scenario | null}} Page
 *   `replays` are the stories that can be played, `machines` the names of cards, `other` the question beside the page's own, if there is one
 */

/** @param {Store} store @param {Page} page */
export function sections(store, page) {
  const follow = [tiers(store, page), levers(store), reality(store, page.speak), replay(store, page)];
  const go = () => {
    if (!store.error) for (const want of follow) want(store.scenario);
  };
  store.addEventListener("answer", go);
  go();
}

/** @param {Store} store @param {Page} page */
function tiers(store, { machines }) {
  const figure = byId("tiers-figure");
  figure.addEventListener("machine", (/** @type {CustomEvent} */ event) => store.put("machine", event.detail));
  const near = new Near(figure, {
    load: () => import("./tier-pyramid.js"),
    ask: (scenario, signal) => ask("api/tiers", scenario, { signal }),
    show: (answer) => {
      if (answer.error) return;
      figure.machines = machines;
      shown(figure, answer);
    },
  });
  const want = () => near.want(store.others.machine ? { ...store.scenario, gpu: store.others.machine } : store.scenario);
  store.addEventListener("others", want);
  return want;
}

/** @param {Store} store */
function levers(store) {
  const figure = byId("levers-figure");
  /** Levers named by the reader for the question asked. @type {string[] | null} */
  let named = null;
  let question = "";
  const near = new Near(figure, {
    load: () => import("./lever-waterfall.js"),
    ask: async ({ scenario, together }, signal) => {
      figure.busy = "Trying each lever…";
      const path = `api/levers?explain=1${together ? `&together=${encodeURIComponent(together.join(";"))}` : ""}`;
      const planned = (/** @type {number} */ n) => signal.aborted || (figure.busy = `Trying each lever: ${n} plans made…`);
      return ask(path, scenario, { signal, planned });
    },
    show: (answer) => {
      figure.busy = answer.error ? refusal(answer.error) : "";
      if (!answer.error) shown(figure, answer);
    },
    rest: REST_MS,
  });
  const want = () => near.want({ scenario: store.scenario, together: named });
  figure.addEventListener("together", (/** @type {CustomEvent} */ event) => {
    named = event.detail;
    want();
  });
  let serving = new AbortController();
  figure.servable = true;
  figure.addEventListener("serve", async () => {
    serving.abort();
    const { signal } = (serving = new AbortController());
    figure.serving = "Serving requests with each…";
    const planned = (/** @type {number} */ n) => signal.aborted || (figure.serving = `Serving requests with each: ${n} plans made…`);
    const found = await ask("api/levers?simulate=1&explain=1", store.scenario, { signal, planned }).catch(() => GONE);
    if (signal.aborted) return;
    figure.serving = found.error ? refusal(found.error) : "";
    figure.served = found.error ? null : found;
  });
  return (/** @type {object} */ scenario) => {
    if (JSON.stringify(scenario) !== question) {
      named = null;
      serving.abort();
      Object.assign(figure, { served: null, serving: "" });
    }
    question = JSON.stringify(scenario);
    want();
  };
}

/** @param {Store} store @param {(text: string) => void} speak */
function reality(store, speak) {
  const figure = byId("reality-figure");
  const drop = byId("file-drop");
  const input = byId("file-input");
  /** @type {Blob | null} */
  let file = null;
  let cut = "";
  let says = "";
  const near = new Near(figure, {
    load: () => import("./stairs.js"),
    ask: ({ scenario, link, dropped, said }, signal) =>
      dropped ? ask(`api/reconcile?s=${link}`, file, { signal, type: "application/octet-stream" }).catch(() => GONE) : ask(`api/reality${said ? `?says=${encodeURIComponent(said)}` : ""}`, scenario, { signal }),
    show: (answer) => {
      drop.classList.remove("busy");
      figure.error = answer.error ? refusal(answer.error) : "";
      if (answer.error) {
        file = null;
        return;
      }
      if (answer.file && cut) answer.file.notes.push(cut);
      shown(figure, answer);
      if (answer.file) speak(answer.file.difference?.sentence ?? answer.file.title);
    },
  });
  let dropped = 0;
  const want = () => {
    const link = store.answer.take_away.link.replace(/^.*s=/, "");
    near.want(file ? { link, dropped } : { scenario: store.scenario, said: says });
  };
  /** @param {File | undefined} given */
  const take = (given) => {
    if (!given) return;
    file = given.slice(0, MOST_BYTES);
    cut = given.size > MOST_BYTES && !/\.(gguf|safetensors)$/i.test(given.name) ? "only the first 32 MiB of the file were read" : "";
    dropped += 1;
    drop.classList.add("busy");
    near.near = true;
    want();
  };
  const area = byId("reality");
  for (const kind of ["dragenter", "dragover"]) {
    area.addEventListener(kind, (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  area.addEventListener("file", (/** @type {any} */ event) => take(event.detail.file)); // one that was dropped elsewhere
  area.addEventListener("dragleave", () => drop.classList.remove("over"));
  area.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    drop.classList.remove("over");
    take(event.dataTransfer?.files[0]);
  });
  input.addEventListener("change", () => {
    take(input.files[0]);
    input.value = "";
  });
  figure.addEventListener("says", (/** @type {CustomEvent} */ event) => {
    says = event.detail;
    want();
  });
  figure.addEventListener("away", () => {
    file = null;
    want();
    input.focus();
  });
  figure.addEventListener("take", (/** @type {CustomEvent} */ event) => {
    file = null;
    store.replace(event.detail, true);
  });
  figure.addEventListener("lengths", (/** @type {CustomEvent} */ event) => store.change({ workload: event.detail }, "lengths"));
  return want;
}

/** @param {Store} store @param {Page} page */
function replay(store, { speak, replays, other }) {
  /** @type {{follow: () => void} | null} */
  let section = null;
  const near = new Near(byId("replay"), {
    load: () => import("./replay-section.js"),
    show: (_, { replaySection }) => {
      section ??= replaySection({ catalogue: replays, scenario: () => store.scenario, other, speak });
      section.follow();
    },
  });
  return (/** @type {object} */ scenario) => near.want({ scenario, beside: other() });
}

/** Give a figure its answer. @param {any} figure @param {unknown} answer */
function shown(figure, answer) {
  figure.classList.add("filled");
  figure.answer = answer;
}
