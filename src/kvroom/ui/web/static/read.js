/** Read: the story's figures, the guess, and the sliders among its sentences. */
import { glide } from "./glide.js";
import { settle } from "./roving.js";
import { Stage } from "./stage.js";
import { mark, words } from "./words.js";
import { cards, grouped, memory, modelName, tokens } from "./text.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./store.js").Store} Store */

const root = document.documentElement;
/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

const CONTEXTS = Array.from({ length: 23 }, (_, i) => (i % 2 ? 3 * 2 ** ((i - 1) / 2 + 9) : 2 ** (i / 2 + 10)));
/** Lengths of the one conversation that grows: 0, 8K … 128K tokens. */
const GROWTH = Array.from({ length: 17 }, (_, i) => i * 8192);

/** The step of a slider nearest to a value. @param {number[]} steps @param {number} value */
const nearest = (steps, value) => steps.reduce((best, step, i) => (Math.abs(Math.log(step / value)) < Math.abs(Math.log(steps[best] / value)) ? i : best), 0);

/** Ask beforehand what a control is about to ask. @param {Store} store @param {HTMLElement} control @param {() => object[]} changes */
function foresee(store, control, changes) {
  for (const event of ["pointerenter", "focusin"]) control.addEventListener(event, () => store.lookAhead(changes()));
}
/** All steps of a slider, the nearest first. @param {HTMLInputElement} slider @param {number[]} steps @param {(value: number) => object} change */
const around = (slider, steps, change) =>
  steps
    .map((value, i) => ({ value, far: Math.abs(i - Number(slider.value)) }))
    .sort((a, b) => a.far - b.far)
    .map(({ value }) => change(value));

/** @param {any} control @param {number} index @param {string} text */
function place(control, index, text) {
  if (document.activeElement !== control || Number(control.value) !== index) control.value = index;
  control.setAttribute("aria-valuetext", text);
}

/** @param {number} n */
const grown = (n) => ({ context_tokens: n || GROWTH[1], concurrency: 1 });
/** What the paragraphs show. @type {Record<string, (tokens: number) => import("./types").Scenario | null>} */
export const SCENES = {
  one: () => ({ concurrency: 1 }),
  long: () => ({ context_tokens: 131072, concurrency: 1 }),
  growth: grown,
  full: () => ({ concurrency: null }),
  "128k": () => ({ context_tokens: 131072, concurrency: null }),
  fp8: () => ({ kv_dtype: "fp8", concurrency: null }),
  "1 at 2k": () => ({ context_tokens: 2048, concurrency: 1 }),
  "64 at 2k": () => ({ context_tokens: 2048, concurrency: 64 }),
};

/**
 * Wire the story. `reveal(guessed, fill)` shows what was to be guessed.
 * @param {Store} store
 */
export function read(store) {
  const bar = byId("memory");
  const grow = byId("grow");
  const batch = byId("batch-range");
  const context = byId("context-range");
  const batches = () => store.answer.figures.step.curve.map((p) => p.batch);

  const guessing = () => root.classList.contains("guessing");
  /** What is to be guessed is not shown. @param {string} name */
  const seen = (name) => (name === "full" && guessing() ? "growth" : name);
  const scene = (/** @type {string} */ name) => SCENES[seen(name)]?.(GROWTH[grow.value]) ?? null;
  const fill = new Stage(byId("talk"), store, {
    scene,
    draw: (answer, of) => {
      const name = seen(of);
      root.classList.remove("untouched");
      bar.classList.toggle("asking", of !== name);
      bar.classList.toggle("bare", name === "growth" && grow.value === "0");
      bar.answer = answer;
      mark(byId("talk"), answer, store.others);
      byId("stage-said").replaceChildren(...caption(answer, name === "growth" ? GROWTH[grow.value] : null));
    },
    act: (name) => {
      if (!["growth", "full"].includes(name)) reveal(false);
    },
  });
  const flow = new Stage(byId("flow"), store, { scene, draw: (answer) => (mark(byId("flow"), answer, store.others), (byId("step").answer = answer)) });

  // ---- one user's cache ----
  const told = () => {
    const n = GROWTH[grow.value];
    byId("grow-said").textContent = `${grouped(n)} tokens`;
    grow.setAttribute("aria-valuetext", `${grouped(n)} tokens`);
  };
  grow.max = GROWTH.length - 1;
  grow.addEventListener("input", () => {
    told();
    fill.held = false;
    fill.name = "growth";
    fill.show();
  });
  foresee(store, grow, () => around(grow, GROWTH, grown));
  told();

  // ---- filling ----
  /** Users now: those asked for, or those drawn. */
  const users = () => store.scenario.concurrency ?? store.answer.figures.memory.users;
  /** @param {number} n */
  function fillTo(n) {
    reveal(false);
    byId("told").hidden = true;
    glide();
    const to = Math.max(1, n);
    store.change({ concurrency: to }, "fill");
    store.lookAhead([to + 1, to + 10].map((n) => ({ concurrency: n })));
  }
  byId("add").addEventListener("click", () => fillTo(users() + 1));
  byId("add10").addEventListener("click", () => fillTo(users() + 10));
  byId("reset").addEventListener("click", () => fillTo(1));
  foresee(store, byId("add"), () => [{ concurrency: users() + 1 }]);

  // ---- the guess ----
  const guess = byId("guess-number");
  guess.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") looked(true);
  });
  byId("reveal").addEventListener("click", () => looked(true));
  byId("skip-guess").addEventListener("click", () => looked(false));

  /** The answer is shown. @param {boolean} guessed */
  function looked(guessed) {
    reveal(true);
    const { room } = store.answer.figures.memory;
    if (guessed && room != null) {
      const said = Number(guess.value);
      const how = said === room ? "Exactly right" : said > room ? "Fewer than you guessed" : "More than you guessed";
      byId("told").textContent = `${how}: ${grouped(room)} fit, and you said ${grouped(said)}. Add one more and see it wait.`;
      byId("told").hidden = false;
    }
    byId("add").focus({ preventScroll: true });
  }

  /** @param {boolean} fills the bar shows all that fit */
  function reveal(fills) {
    if (!guessing()) return;
    try {
      sessionStorage.setItem("kvroom-guessed", "1");
    } catch {
      // then it is asked again another time
    }
    root.classList.remove("guessing", "untouched");
    settle();
    if (!fills) return;
    glide();
    fill.held = false;
    fill.name = "full";
    fill.show();
  }

  // ---- sliders ----
  context.min = batch.min = 0;
  context.max = CONTEXTS.length - 1;
  context.addEventListener("input", () => store.change({ context_tokens: CONTEXTS[context.value] }, "context"));
  foresee(store, context, () => around(context, CONTEXTS, (value) => ({ context_tokens: value })));
  batch.addEventListener("input", () => store.change({ concurrency: batches()[batch.value] }, "batch"));
  foresee(store, batch, () => around(batch, batches(), (value) => ({ concurrency: value })));

  byId("price-figure").addEventListener("turn", (/** @type {CustomEvent} */ event) => {
    const { name, value } = event.detail;
    const { turns } = store.answer.figures.price;
    if (name === "bits") {
      store.change({ kv_dtype: turns.bits.find((t) => t.value === value)?.kv_dtype ?? null }, "kv");
      return;
    }
    const turn = /** @type {import("./types").Turn} */ (/** @type {any} */ (turns)[name]);
    store.change({ model: { config: { ...turns.config, [turn.key]: value } } }, `turn ${name}`);
  });

  const show = () => {
    const { answer } = store;
    const m = answer.figures.memory;
    if (m.waiting || m.over_bytes) reveal(false);
    const room = answer.figures.traits.includes("room");
    for (const id of ["add", "add10", "reset"]) byId(id).disabled = !room;
    if (store.error) return;
    const { scenario: s, step } = answer;
    place(context, nearest(CONTEXTS, s.context_tokens), `${grouped(s.context_tokens)} tokens a request`);
    byId("context-said").textContent = `${grouped(s.context_tokens)} tokens`;
    batch.max = batches().length - 1;
    place(batch, nearest(batches(), step.batch), `${grouped(step.batch)} requests`);
    byId("batch-said").textContent = `${grouped(step.batch)} request${step.batch === 1 ? "" : "s"}`;
  };
  store.addEventListener("answer", show);
  words(store);
  show();
  fill.show();
  flow.show();
  return { reveal: () => reveal(false) };
}

/** What the pinned bar shows, in a line. @param {Answer} answer @param {number | null} talked tokens of the one user */
function caption({ scenario: s, figures: { memory: m } }, talked) {
  const bold = (/** @type {string} */ text) => Object.assign(document.createElement("b"), { textContent: text });
  const of = `${modelName(s)} on ${cards(s)}`;
  if (talked != null) return talked ? [bold("One user"), `, ${grouped(talked)} tokens: `, bold(memory(m.request_bytes)), ` of cache · ${of}`] : [bold("The weights alone"), ` · ${of}`];
  const width = s.kv_dtype === "auto" ? "" : `, cache ${s.kv_dtype.toUpperCase()}`;
  const wait = m.waiting ? `; ${grouped(m.waiting)} wait` : "";
  return [bold(tokens(s.context_tokens)), ` a request${width}: `, bold(m.room == null ? "no limit" : `room for ${grouped(m.room)}`), `${wait} · ${of}`];
}
