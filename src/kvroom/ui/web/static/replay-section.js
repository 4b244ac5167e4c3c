/** Section "Watch it break": asks for runs, plays them, keeps its controls and figures in step. */
import "./replay.js";
import "./cliff.js";
import "./reuse-curve.js";
import { Run } from "./replay-run.js";
import { GONE, lines, packed, refusal } from "./ask.js";
import { clock, grouped } from "./text.js";

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const REST_MS = 350;
const CALM_MS = 500;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const PAGE = 25;
const TRACE = "trace";
/** Beside the run stands that of the page's other question. */
const OTHER = "other";

/**
 * @typedef {import("./types").Scenario} Scenario
 * @param {{catalogue: any, scenario: () => Scenario, other: () => Scenario | null, speak: (text: string) => void}} page
 *   `other` is the question that is set beside the page's, if there is one
 */
export function replaySection({ catalogue, scenario, other, speak }) {
  const [figure, cliff, reuse] = ["replay-figure", "cliff", "reuse"].map(byId);
  const [story, beside, seed, slider, scrub, play, speed, followed, file, sessions] = ["story", "beside", "seed", "blocks-range", "scrub", "play", "speed", "follow", "trace", "sessions"].map(byId);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  /** @type {AbortController | null} */
  let asking = null;
  /** Asked for by hand; null stands for the middle of the slider. @type {number | null} */
  let blocks = null;
  /** @type {number[]} */
  let steps = [];
  /** @type {{name: string, base64: string} | null} */
  let trace = null;
  /** What the cliff and the curve below are of. */
  let below = "";
  let ticking = 0;
  let last = 0;
  let fresh = true;
  let resting = 0;

  const fill = (/** @type {HTMLSelectElement} */ list, /** @type {{id: string, label: string}[]} */ items) => list.replaceChildren(...items.map(({ id, label }) => new Option(label, id)));
  fill(story, catalogue.stories);
  fill(beside, catalogue.beside);
  fill(speed, SPEEDS.map((s) => ({ id: String(s), label: `${s} ×` })));
  speed.value = "1";

  // ---- asking ----

  /** What every run of this section is asked with. */
  const question = () => ({ scenario: scenario(), ...(trace && story.value === TRACE ? { trace, ...atATime() } : {}) });
  /** So many sessions of the trace at a time, where that is asked. */
  const atATime = () => (Number(sessions.value) > 0 ? { sessions: Math.floor(Number(sessions.value)) } : {});
  const replay = () => ({ story: story.value, seed: Number(seed.value) || 0 });
  /** Of the page's question only this matters here. */
  const key = () => JSON.stringify([catalogue.keys.map((/** @type {string} */ k) => scenario()[k] ?? null), replay(), story.value === TRACE ? [trace?.name, atATime()] : ""]);

  /** Ask anew for all. */
  async function load() {
    clearTimeout(resting);
    asking?.abort();
    const mine = (asking = new AbortController());
    stop();
    const both = beside.value ? ["", beside.value] : [""];
    /** @type {(Run | undefined)[]} */
    const runs = [];
    byId("replay").setAttribute("aria-busy", "true");
    say("");
    try {
      await Promise.all(both.map((which, i) => run(runs, i, which, mine.signal)));
      if (mine.signal.aborted) return;
      figure.time = Math.max(...figure.runs.map((/** @type {any} */ r) => r.worst_s ?? 0));
      fresh = true;
      moved();
      speak(figure.sentence());
      if (below !== key()) {
        below = "";
        await Promise.all([edge(mine.signal), again(mine.signal)]);
        below = key();
      }
    } catch (error) {
      if (!mine.signal.aborted) say(/** @type {any} */ (error).told ?? refusal(GONE.error));
    } finally {
      if (asking === mine) byId("replay").removeAttribute("aria-busy");
    }
  }

  /** @param {(Run | undefined)[]} runs @param {number} i @param {string} which @param {AbortSignal} signal */
  async function run(runs, i, which, signal) {
    const asked = which === OTHER ? { ...question(), scenario: other(), replay: { ...replay(), blocks } } : { ...question(), replay: { ...replay(), blocks, beside: which } };
    for await (const told of lines("api/simulate", { ...asked, frames: true }, signal)) {
      if (told.kind === "error") throw Object.assign(new Error(), { told: refusal(told.error) });
      const made = runs[i];
      if (told.kind === "asked") {
        runs[i] = new Run(which === OTHER ? { ...told, name: "the other question" } : told);
        if (!i) sizes(told);
      } else if (made && told.kind === "frames") made.frames.push(...told.frames);
      else if (made && told.kind === "answer") Object.assign(made, { answer: { ...told.answer, explanations: told.explanations }, worst_s: told.worst_s });
      if (signal.aborted) return;
      figure.runs = runs.filter((r) => r);
      figure.answer = figure.runs[0].answer ?? {};
      figure.grown += 1;
    }
    if (!runs[i]?.answer) throw Object.assign(new Error(), { told: "The answer broke off. Ask again." });
  }

  /** The slider has the sizes that the server names. @param {any} head */
  function sizes(head) {
    steps = head.steps;
    slider.max = steps.length - 1;
    slider.value = steps.indexOf(head.blocks);
    slider.setAttribute("aria-valuetext", `${grouped(head.blocks)} blocks`);
    byId("blocks-said").textContent = `${grouped(head.blocks)} blocks`;
  }

  /** Sizes being played of which the cliff tells: a second run with another seed or rule is not on it. */
  const here = () => figure.runs.slice(0, ["fewer", "more"].includes(beside.value) ? 2 : 1).map((/** @type {any} */ r) => r.head.blocks);

  /** The cliff, point by point. @param {AbortSignal} signal */
  async function edge(signal) {
    /** @type {any[]} */
    const points = [];
    for await (const told of lines("api/simulate", { ...question(), replay: replay(), cliff: true }, signal)) {
      if (told.kind === "error") throw Object.assign(new Error(), { told: refusal(told.error) });
      if (told.kind === "point") cliff.answer = { points: [...points, points.push(told.point) && told.point].slice(0, points.length) };
      if (told.kind === "answer") cliff.answer = told.answer;
      if (told.cut) say("The edge was not followed to its end: that would have taken too long here.");
      cliff.here = here();
    }
  }

  /** What the cache could find again. @param {AbortSignal} signal */
  async function again(signal) {
    const body = story.value === TRACE ? { trace } : { ...question(), ...replay() };
    for await (const told of lines("api/reuse", body, signal)) {
      if (told.kind === "error") throw Object.assign(new Error(), { told: refusal(told.error) });
      if (told.kind === "answer") reuse.answer = told.answer;
      reuse.here = here()[0];
    }
  }

  /** @param {string} text */
  function say(text) {
    const told = byId("replay-told");
    told.textContent = text;
    told.hidden = !text;
  }

  // ---- playing ----

  /** Everything that shows the time. */
  function moved() {
    const end = figure.end_s;
    scrub.max = Math.ceil(end * 1000);
    scrub.value = Math.round(figure.time * 1000);
    scrub.setAttribute("aria-valuetext", `${clock(figure.time)} of ${clock(end)}`);
    cliff.here = here();
    reuse.here = here()[0] ?? 0;
  }

  /** @param {number} time @param {boolean} [tell] */
  function to(time, tell = true) {
    fresh = false;
    figure.time = Math.max(0, Math.min(figure.end_s, time));
    moved();
    if (tell) speak(figure.sentence());
  }

  function stop() {
    clearTimeout(ticking);
    cancelAnimationFrame(ticking);
    ticking = 0;
    play.textContent = "Play";
  }

  function start() {
    if (!figure.runs.length) return;
    if (fresh || figure.time >= figure.end_s) to(0, false);
    play.textContent = "Pause";
    last = performance.now();
    next();
  }

  // With reduced motion the picture changes twice a second, as a row of stills.
  const next = () => (ticking = calm.matches ? setTimeout(tick, CALM_MS) : requestAnimationFrame(tick));
  function tick() {
    const now = performance.now();
    to(figure.time + ((now - last) / 1000) * Number(speed.value), false);
    last = now;
    if (figure.time < figure.end_s) next();
    else pause();
  }
  function pause() {
    stop();
    speak(figure.sentence());
  }
  const step = (/** @type {number} */ by, count = 1) => {
    stop();
    let time = figure.time;
    for (let i = 0; i < count; i++) {
      figure.time = figure.moment(by);
      if (figure.time === time) break;
      time = figure.time;
    }
    to(figure.time);
  };

  play.addEventListener("click", () => (ticking ? pause() : start()));
  byId("forward").addEventListener("click", () => step(1));
  byId("back").addEventListener("click", () => step(-1));
  scrub.addEventListener("input", () => {
    stop();
    to(Number(scrub.value) / 1000);
  });
  scrub.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const [by, count] = { ArrowRight: [1, 1], ArrowUp: [1, 1], ArrowLeft: [-1, 1], ArrowDown: [-1, 1], PageUp: [1, PAGE], PageDown: [-1, PAGE] }[event.key] ?? [0, 0];
    if (!by) return;
    event.preventDefault();
    step(by, count);
  });
  figure.addEventListener("seek", (/** @type {CustomEvent} */ event) => {
    stop();
    to(event.detail);
  });
  figure.addEventListener("follow", (/** @type {CustomEvent} */ event) => {
    figure.followed = event.detail;
    followed.value = event.detail || "";
  });
  followed.addEventListener("input", () => (figure.followed = Number(followed.value) || 0));

  // ---- choosing ----

  const soon = () => {
    clearTimeout(resting);
    resting = setTimeout(load, REST_MS);
  };
  slider.addEventListener("input", () => {
    blocks = steps[slider.value];
    slider.setAttribute("aria-valuetext", `${grouped(blocks)} blocks`);
    byId("blocks-said").textContent = `${grouped(blocks)} blocks`;
    soon();
  });
  cliff.addEventListener("choose", (/** @type {CustomEvent} */ event) => {
    blocks = event.detail;
    load();
  });
  story.addEventListener("change", () => {
    blocks = null;
    load();
  });
  beside.addEventListener("change", load);
  seed.addEventListener("change", load);
  sessions.addEventListener("change", load);
  byId("reseed").addEventListener("click", () => {
    seed.value = String((Number(seed.value) || 0) + 1);
    load();
  });

  /** @param {File | undefined} given */
  async function take(given) {
    if (!given) return;
    trace = await packed(given);
    story.querySelector(`option[value="${TRACE}"]`)?.remove();
    story.append(new Option(trace.name, TRACE));
    story.value = TRACE;
    byId("sessions-of").hidden = false;
    blocks = null;
    below = "";
    load();
  }
  const section = byId("replay");
  section.addEventListener("dragover", (/** @type {DragEvent} */ event) => event.preventDefault());
  section.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    take(event.dataTransfer?.files[0]);
  });
  file.addEventListener("change", async () => {
    await take(file.files[0]);
    file.value = ""; // so that the same file, mended, can be chosen again
  });

  let asked = "";
  const of = (/** @type {Scenario | null} */ s) => s && catalogue.keys.map((/** @type {string} */ k) => s[k] ?? null);
  return {
    /** The page's questions may have changed. */
    follow() {
      const offered = [...beside.options].find((option) => option.value === OTHER);
      if (other() && !offered) beside.append(new Option("the page's other question", OTHER));
      if (!other() && offered) offered.remove();
      const now = JSON.stringify([of(scenario()), beside.value === OTHER && of(other())]);
      if (now === asked) return;
      if (asked) blocks = null;
      asked = now;
      soon();
    },
  };
}
