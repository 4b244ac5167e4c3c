/** The instrument: its form asks, its answer says. `plan.html` tells what it shares with the page. */
import { Beside } from "./beside.js";
import "./plan-card.js";
import { Form } from "./plan-form.js";
import { commands, serving } from "./plan-run.js";
import { Intake } from "./plan-take.js";
import { keyOf } from "./store.js";

/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */
/**
 * @typedef {{glide: () => void, speak: (text: string) => void, reveal: () => void, presets: any[]}} Page
 *   what the page offers: `glide` the next change of a bar, `speak` in the live region, `reveal` what was to be guessed
 */

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const root = document.documentElement;
const LAST = "Shown below is the last question that was answered.";
const STALE_MS = 150;

/**
 * Wire the form to the question, and the answer to the form. `from(hash)` reads both questions of an address,
 * `fault(text)` says why there is no answer.
 * @param {Store} store @param {Page} page
 */
export function plan(store, { glide, speak, reveal, presets }) {
  const form = new Form(store, { glide, speak });
  const run = serving(store, { speak, mark: (error) => form.mark(error) });
  commands(store, { speak });
  new Intake(store, {
    speak,
    trace: run.play,
    label: (key) => {
      const label = /** @type {any} */ (form.fieldOf(key))?.labels?.[0]?.textContent;
      return label && !key.startsWith("engine_args.") ? label : key.replace(/^engine_args\./, "flag ").replace(/_/g, " ");
    },
  });
  byId("preset").addEventListener("change", (/** @type {any} */ event) => {
    const preset = presets.find((/** @type {any} */ p) => p.id === event.target.value);
    if (!preset) return;
    reveal();
    glide();
    store.replace(preset.scenario, true);
  });
  /** Figures of which two questions show two. */
  const beside = new Beside(store, ["card", "accounts", "levers-figure", "reality-figure"].map(byId), { speak, glide, fieldOf: (key) => form.fieldOf(key) });

  objective(store);
  const card = byId("card");
  card.link = () => `${location.origin}${location.pathname}#${store.fragment()}`;
  card.addEventListener("say", (/** @type {CustomEvent} */ event) => speak(event.detail));
  card.addEventListener("field", (/** @type {CustomEvent} */ event) => form.focus(event.detail));

  // What is shown is of the question asked, or grey.
  let late = 0;
  store.addEventListener("asking", () => {
    clearTimeout(late);
    late = setTimeout(() => root.classList.add("stale"), STALE_MS);
  });

  const show = () => {
    clearTimeout(late);
    root.classList.toggle("stale", Boolean(store.error));
    const { answer, scenario } = store;
    if (!store.error) {
      beside.show();
      card.answer = answer;
      byId("accounts").answer = answer;
    }
    form.show();
    byId("preset").value = presets.find((/** @type {any} */ p) => keyOf(p.scenario) === keyOf(scenario))?.id ?? "";
    const verdict = byId("verdict");
    verdict.dataset.fits = store.error ? "unknown" : answer.verdict.fits && !answer.figures.memory.waiting ? "yes" : "no";
    verdict.dataset.colour = store.error ? "unknown" : /** @type {any} */ (answer.figures).card.colour;
    verdict.querySelector(".sentence").textContent = store.error ? LAST : answer.verdict.sentence;
    fault(store.error);
  };
  store.addEventListener("answer", show);
  show();
  return { beside, fault, from: (/** @type {string} */ hash) => beside.from(hash) };
}

/** The objective is no key of the question; the address holds it beside. @param {Store} store */
function objective(store) {
  const field = byId("slo");
  const read = () => (field.value = new URLSearchParams(location.hash.slice(1)).get("slo") ?? "");
  const own = store.fragment.bind(store);
  store.fragment = () => `${own()}${field.value.trim() ? `&slo=${encodeURIComponent(field.value.trim())}` : ""}`;
  field.addEventListener("input", () => store.saveAddress());
  addEventListener("popstate", read);
  read();
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
