/** Wires the page: controls change the question, the answer moves the figures. */
import "./memory-bar.js";
import { sections } from "./sections.js";
import "./token-price.js";
import "./step-bar.js";
import "./take-away.js";
import "./terms.js";
import { tell } from "./number.js";
import { Timer, pending } from "./pending.js";
import { plan } from "./plan.js";
import { Store } from "./store.js";
import { views } from "./views.js";
import { grouped } from "./text.js";

const root = document.documentElement;
/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const start = JSON.parse(byId("start").textContent);
const store = new Store(start);
store.said = [...new Set([...document.querySelectorAll("kv-n[of]")].map((n) => n.getAttribute("figure") ?? ""))];

const CONTEXTS = Array.from({ length: 23 }, (_, i) => (i % 2 ? 3 * 2 ** ((i - 1) / 2 + 9) : 2 ** (i / 2 + 10)));
const DTYPES = [["auto", "auto"], ["bf16", "BF16"], ["fp8", "FP8"], ["q4_0", "4-bit"]];

/** The step of a slider nearest to a value. @param {number[]} steps @param {number} value */
const nearest = (steps, value) => steps.reduce((best, step, i) => (Math.abs(Math.log(step / value)) < Math.abs(Math.log(steps[best] / value)) ? i : best), 0);
const batches = () => store.answer.figures.step.curve.map((p) => p.batch);

/** Blocks glide for an act that is one step; under a hand that slides they follow at once. */
let still = 0;
function glide() {
  root.classList.add("gliding");
  clearTimeout(still);
  still = setTimeout(() => root.classList.remove("gliding"), 600);
}

/** Ask beforehand what a control is about to ask. @param {HTMLElement} control @param {() => object[]} changes */
function foresee(control, changes) {
  for (const event of ["pointerenter", "focusin"]) control.addEventListener(event, () => store.lookAhead(changes()));
}
/** All steps of a slider, the nearest first. @param {HTMLInputElement} slider @param {number[]} steps @param {string} key */
const around = (slider, steps, key) =>
  steps
    .map((value, i) => ({ value, far: Math.abs(i - Number(slider.value)) }))
    .sort((a, b) => a.far - b.far)
    .map(({ value }) => ({ [key]: value }));

// ---- controls ----

for (const slider of [byId("context-range"), byId("context-range-2")]) {
  slider.min = 0;
  slider.max = CONTEXTS.length - 1;
  slider.addEventListener("input", () => store.change({ context_tokens: CONTEXTS[slider.value] }, slider.id));
  foresee(slider, () => around(slider, CONTEXTS, "context_tokens"));
}
const batch = byId("batch-range");
batch.min = 0;
batch.addEventListener("input", () => store.change({ concurrency: batches()[batch.value] }, "batch"));
foresee(batch, () => around(batch, batches(), "concurrency"));

for (const [i, group] of [...document.querySelectorAll('.seg[data-key="kv_dtype"]')].entries()) {
  for (const [value, name] of DTYPES) {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "radio", name: `kv-${i}`, value });
    const span = document.createElement("span");
    span.textContent = name;
    input.addEventListener("change", () => {
      glide();
      store.change({ kv_dtype: value === "auto" ? null : value }, "kv");
    });
    label.append(input, span);
    group.append(label);
  }
  foresee(/** @type {HTMLElement} */ (group), () => DTYPES.map(([value]) => ({ kv_dtype: value === "auto" ? null : value })));
}

const theme = byId("theme");
theme.value = root.dataset.theme ?? "";
theme.addEventListener("change", () => {
  if (theme.value) root.dataset.theme = theme.value;
  else delete root.dataset.theme;
  try {
    localStorage.setItem("kvroom-theme", theme.value);
  } catch {
    // then it holds for this visit
  }
});

// ---- filling ----

/** Users now: those asked for, or those drawn. */
const users = () => {
  if (root.classList.contains("untouched")) return 1;
  return store.scenario.concurrency ?? store.answer.figures.memory.users;
};
/** @param {number} n @param {string} control */
function fillTo(n, control) {
  const to = Math.max(1, n);
  byId("told").hidden = true;
  root.classList.remove("untouched");
  glide();
  store.change({ concurrency: to }, control);
  store.lookAhead([to + 1, to + 10, Math.max(1, to - 1)].map((n) => ({ concurrency: n })));
}
byId("add").addEventListener("click", () => fillTo(users() + 1, "fill"));
byId("add10").addEventListener("click", () => fillTo(users() + 10, "fill"));
byId("drop").addEventListener("click", () => fillTo(users() - 1, "fill"));
byId("reset").addEventListener("click", () => fillTo(1, "fill"));
byId("filled").addEventListener("click", () => {
  root.classList.remove("untouched");
  glide();
  store.change({ concurrency: null }, "fill");
});

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

// ---- the guess ----

const guess = byId("guess-number");
const range = byId("guess-range");
range.addEventListener("input", () => (guess.value = range.value));
guess.addEventListener("input", () => (range.value = guess.value));
guess.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key === "Enter") reveal(true, true);
});
byId("reveal").addEventListener("click", () => reveal(true, true));
byId("skip-guess").addEventListener("click", () => reveal(false, true));

/** Show the answer. @param {boolean} guessed @param {boolean} fill */
function reveal(guessed, fill) {
  if (!root.classList.contains("guessing")) return;
  try {
    sessionStorage.setItem("kvroom-guessed", "1");
  } catch {
    // then it is asked again another time
  }
  root.classList.remove("guessing", "untouched");
  if (fill) glide();
  if (fill && store.scenario.concurrency != null) store.change({ concurrency: null }, "fill");
  const { room } = store.answer.figures.memory;
  const told = byId("told");
  if (guessed && room != null) {
    const said = Number(guess.value);
    const how = said === room ? "Exactly right" : said > room ? "Fewer than you guessed" : "More than you guessed";
    told.textContent = `${how}: ${grouped(room)} fit, and you said ${grouped(said)}. Add one more and see it wait.`;
    told.hidden = false;
  }
  if (fill) byId("add").focus({ preventScroll: true });
}

const away = new IntersectionObserver(([entry]) => {
  if (!entry.isIntersecting && entry.boundingClientRect.bottom < 0) reveal(false, false);
});
away.observe(byId("memory"));

// ---- answers ----

/** What is on the screen moves at once; the rest when the hand rests. */
const FIGURES = ["memory", "price-figure", "compare", "step", "takeaway"].map(byId);
const UNSEEN_MS = 100;
/** @type {Set<any>} */
const seen = new Set(FIGURES.slice(0, 1));
const later = new Timer();
const looking = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
  }
});
for (const element of FIGURES) looking.observe(element);

const live = byId("live");
let spoken = "";
let speaking = 0;
/** At most once a second. @param {string} text */
function speak(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    if (text !== spoken) live.textContent = spoken = text;
  }, 1000);
}

const instrument = plan(store, { glide, speak, reveal: () => reveal(false, false), catalogue: start.catalogue, presets: start.presets });

/** @param {any} control @param {number} index @param {string} text */
function place(control, index, text) {
  if (document.activeElement !== control || Number(control.value) !== index) control.value = index;
  control.setAttribute("aria-valuetext", text);
}

function show() {
  const { answer, answers } = store;
  const m = answer.figures.memory;
  byId("main").dataset.is = answer.figures.traits.join(" ");
  tell(answers);
  for (const element of FIGURES) if (seen.has(element)) element.answer = answer;
  later.set(() => FIGURES.forEach((element) => (element.answer = answer)), UNSEEN_MS);

  if (!store.error) controls(answer);
  const room = answer.figures.traits.includes("room");
  for (const id of ["add", "add10", "reset", "filled"]) byId(id).disabled = !room;
  byId("drop").disabled = !room || users() <= 1;
  if (m.waiting || m.over_bytes) reveal(false, false);

  if (!root.classList.contains("guessing")) speak(store.error || answer.verdict.sentence);
}

/** Sliders and switches say what is drawn. @param {import("./types").Answer} answer */
function controls({ scenario: s, step }) {
  const context = `${grouped(s.context_tokens)} tokens`;
  for (const [slider, output] of [["context-range", "context-said"], ["context-range-2", "context-said-2"]]) {
    place(byId(slider), nearest(CONTEXTS, s.context_tokens), `${context} a request`);
    byId(output).textContent = context;
  }
  batch.max = batches().length - 1;
  place(batch, nearest(batches(), step.batch), `${grouped(step.batch)} requests`);
  byId("batch-said").textContent = `${grouped(step.batch)} request${step.batch === 1 ? "" : "s"}`;
  for (const input of document.querySelectorAll('.seg[data-key="kv_dtype"] input')) {
    /** @type {any} */ (input).checked = /** @type {any} */ (input).value === s.kv_dtype;
  }
}

store.addEventListener("answer", show);
store.addEventListener("neighbours", () => {
  tell(store.answers);
  byId("compare").answers = store.compared;
});
store.addEventListener("address", () => byId("takeaway").requestUpdate());

async function fromAddress() {
  store.arrive();
  try {
    const asked = await instrument.from(location.hash);
    if (asked) reveal(false, false);
    store.replace(asked ?? start.scenario, false);
  } catch (error) {
    instrument.fault(/** @type {Error} */ (error).message);
  }
}
addEventListener("popstate", () => pending(fromAddress()));

show();
views(store);
if (start.error) instrument.fault(start.error);
pending(/[#&]s=/.test(location.hash) ? fromAddress() : store.askNeighbours());
sections(store, { speak, replays: start.replays, machines: start.catalogue.gpus, other: () => instrument.beside.other?.scenario ?? null });
root.classList.add("ready");
