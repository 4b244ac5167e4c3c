/** Present: the story's figures one at a time, by the arrow keys, full screen where it is wished. */
import { ask, lines } from "./ask.js";
import { SCENES } from "./read.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./store.js").Store} Store */

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const STEPS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
/** Figures that have an answer of their own, and what draws them. @type {Record<string, {path: string, load: () => Promise<unknown>}>} */
const OWN = {
  "kv-tiers": { path: "api/tiers", load: () => import("./tier-pyramid.js") },
  "kv-reality": { path: "api/reality", load: () => import("./stairs.js") },
};

/** @param {Store} store */
export function present(store) {
  const deck = byId("deck");
  const slides = /** @type {HTMLElement[]} */ ([...deck.querySelectorAll(".slide")]);
  let at = 0;
  let turn = 0;
  let playing = new AbortController();

  /** The answer that a slide draws. @param {HTMLElement} slide @returns {Promise<any>} */
  async function answerOf(slide) {
    const tag = slide.querySelector(".fig")?.firstElementChild?.localName ?? "";
    if (OWN[tag]) {
      const [answer] = await Promise.all([ask(OWN[tag].path, store.scenario), OWN[tag].load()]);
      return answer.error ? null : answer;
    }
    if (tag === "kv-cliff") {
      await import("./cliff.js");
      let found = null;
      for await (const told of lines("api/simulate", { scenario: store.scenario, replay: { seed: 0 }, cliff: true }, new AbortController().signal)) if (told.kind === "answer") found = told.answer;
      return found;
    }
    const scene = slide.dataset.scene ?? "";
    if (scene !== "waits") return SCENES[scene] ? store.peek(/** @type {any} */ (SCENES[scene](0))) : store.answer;
    const full = await store.peek({ concurrency: null });
    const room = full?.figures.memory.room;
    return room == null ? full : store.peek({ concurrency: room + 1 });
  }

  /** @param {number} to */
  async function show(to) {
    at = Math.max(0, Math.min(slides.length - 1, to));
    const mine = ++turn;
    slides.forEach((slide, i) => (slide.hidden = i !== at));
    byId("slide-count").textContent = `${at + 1} of ${slides.length}`;
    byId("slide-back").disabled = at === 0;
    byId("slide-on").disabled = at === slides.length - 1;
    const figure = /** @type {any} */ (slides[at].querySelector(".fig")?.firstElementChild);
    playing.abort();
    playing = new AbortController();
    const { signal } = playing;
    deck.setAttribute("aria-busy", "true");
    const played = figure.localName === "kv-replay";
    const answer = played
      ? await import("./replay-slide.js").then(({ playSlide }) => playSlide(figure, store.scenario, signal)).catch(() => null)
      : await answerOf(slides[at]).catch(() => null);
    if (mine !== turn) return;
    deck.removeAttribute("aria-busy");
    if (answer) figure.answer = answer;
  }

  /** @param {number} to */
  function go(to) {
    show(to);
    store.note("slide", String(at + 1));
  }

  const full = () => (document.fullscreenElement ? document.exitFullscreen() : deck.requestFullscreen?.());
  byId("slide-back").addEventListener("click", () => go(at - 1));
  byId("slide-on").addEventListener("click", () => go(at + 1));
  byId("slide-full").addEventListener("click", full);
  document.addEventListener("keydown", (event) => {
    if (store.view !== "present" || event.altKey || event.ctrlKey || event.metaKey) return;
    const target = /** @type {Element} */ (event.target);
    if (target.closest("input, select, kv-drag, kv-n") || (event.key === " " && target.closest("button, a, summary"))) return;
    if (event.key in STEPS) go(at + STEPS[/** @type {keyof typeof STEPS} */ (event.key)]);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(slides.length - 1);
    else if (event.key === "f" || event.key === "F") full();
    else if (event.key === "Escape" && !document.fullscreenElement) return store.go("read");
    else return;
    event.preventDefault();
  });
  const arrive = () => {
    if (store.view === "present") show(Number(store.others.slide ?? 1) - 1);
    else playing.abort();
  };
  for (const event of ["view", "others", "answer"]) store.addEventListener(event, arrive);
  arrive();
}
