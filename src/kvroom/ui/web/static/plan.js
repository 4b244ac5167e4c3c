/** The instrument: its form asks, its answer says. `plan.html` tells what it shares with the page. */
import { Beside } from "./beside.js";
import { keyOf } from "./store.js";

/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */
/**
 * @typedef {{glide: () => void, speak: (text: string) => void, reveal: () => void, catalogue: {models: string[], gpus: string[], engines: string[]}, presets: any[]}} Page
 *   what the page offers: `glide` the next change of a bar, `speak` in the live region, `reveal` what was to be guessed
 */

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const LAST = "Shown below is the last question that was answered.";

/** What each field of the form asks. @type {Record<string, (value: string) => object | null>} */
const FIELDS = {
  model: (value) => (value ? { model: value } : null),
  gpu: (value) => (value ? { gpu: value } : null),
  count: (value) => (Number(value) >= 1 ? { gpu_count: Number(value), pp: null, dp: null, ep: null, dcp: null } : null),
  kv: (value) => ({ kv_dtype: value === "auto" ? null : value }),
  context: (value) => (Number(value) >= 1 ? { context_tokens: Number(value) } : null),
  users: (value) => ({ concurrency: Number(value) >= 1 ? Number(value) : null }),
  engine: (value) => ({ engine: value, engine_args: null, engine_version: null }),
};

/**
 * Wire the form to the question, and the answer to the form. `from(hash)` reads both questions of an address,
 * `fault(text)` says why there is no answer.
 * @param {Store} store @param {Page} page
 */
export function plan(store, { glide, speak, reveal, presets }) {
  for (const [id, asks] of Object.entries(FIELDS)) {
    byId(id).addEventListener("change", (/** @type {any} */ event) => {
      const change = asks(event.target.value);
      glide();
      if (change) store.change(change, id);
      else fields({ ...store.answer.scenario, ...store.scenario });
    });
  }
  byId("question").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
  byId("preset").addEventListener("change", (/** @type {any} */ event) => {
    const preset = presets.find((/** @type {any} */ p) => p.id === event.target.value);
    if (!preset) return;
    reveal();
    glide();
    store.replace(preset.scenario, true);
  });
  /** Figures of which two questions show two. */
  const beside = new Beside(store, ["memory", "price-figure", "tiers-figure", "step", "levers-figure", "reality-figure"].map(byId), { speak, glide });

  const show = () => {
    const { answer, scenario } = store;
    if (!store.error) beside.show();
    fields(store.error ? { ...answer.scenario, ...scenario } : answer.scenario);
    byId("preset").value = presets.find((/** @type {any} */ p) => keyOf(p.scenario) === keyOf(scenario))?.id ?? "";
    const verdict = byId("verdict");
    verdict.dataset.fits = store.error ? "unknown" : answer.verdict.fits && !answer.figures.memory.waiting ? "yes" : "no";
    verdict.querySelector(".sentence").textContent = store.error ? LAST : answer.verdict.sentence;
    fault(store.error);
  };
  store.addEventListener("answer", show);
  show();
  return { beside, fault, from: (/** @type {string} */ hash) => beside.from(hash) };
}

/** The form says what is asked, be it refused. @param {Scenario} s */
function fields(s) {
  const shown = {
    model: typeof s.model === "string" ? s.model : ownModel(),
    gpu: typeof s.gpu === "string" ? s.gpu : "",
    count: s.gpu_count,
    kv: s.kv_dtype,
    context: s.context_tokens,
    users: s.concurrency ?? "",
    engine: s.engine,
  };
  for (const [id, value] of Object.entries(shown)) {
    const field = byId(id);
    if (String(field.value) !== String(value)) field.value = value;
  }
}

/** The entry of the model list that stands for a config by value. */
function ownModel() {
  const list = byId("model");
  if (!list.querySelector('option[value=""]')) list.prepend(new Option("your own config", ""));
  return "";
}

/** @param {string} text */
function fault(text) {
  const verdict = byId("verdict");
  let told = verdict.querySelector(".fault");
  if (text && !told) {
    told = document.createElement("strong");
    told.className = "fault";
    verdict.prepend(told);
  }
  if (told) {
    told.textContent = text;
    told.hidden = !text;
  }
}
