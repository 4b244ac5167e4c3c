/** The asked question, its answer, and its address. All numbers come from Python. */
import { GONE, post, refusal } from "./ask.js";
import { Timer, pending } from "./pending.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Scenario} Scenario */

const VERSION = "1";
const GESTURE_MS = 1000;
/** So long the hand rests before the address tells of the question (which a browser takes its time for) … */
const ADDRESS_MS = 250;
/** … and its neighbours are asked. */
const NEIGHBOURS_MS = 250;
const MOST_KEPT = 200;
const FEW = 4;

/** The same for the same question. @param {Scenario} scenario */
export const keyOf = (scenario) => JSON.stringify(Object.entries(scenario).sort());

/** Keys set to null are no longer asked. @param {Scenario} given @param {Scenario} change */
export function changed(given, change) {
  const merged = { ...given, ...change };
  if ("gpu_count" in change && !("tp" in change)) delete merged.tp;
  if ("concurrency" in change && merged.workload) merged.workload = { ...merged.workload, concurrency: null };
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value != null));
}

/** @typedef {"read" | "plan" | "present"} View */
const VIEWS = ["read", "plan", "present"];

/** Words that places which share links put into an address (`scenario/link.py` passes the same over). */
const TRACKER = /^(utm_|mc_|(fbclid|gclid|dclid|msclkid|twclid|li_fat_id|igshid|ref|source)$)/;
/** Whether what stands behind an address's "?" asks anything. @param {string} search */
export const asks = (search) => [...new URLSearchParams(search).keys()].some((key) => !TRACKER.test(key));

/** The way of use that an address asks for: a question of one's own opens Plan. @param {{hash: string, search: string}} address @returns {View} */
export function viewOf({ hash, search }) {
  const state = new URLSearchParams(hash.replace(/^#/, ""));
  const view = state.get("view") ?? "";
  if (VIEWS.includes(view)) return /** @type {View} */ (view);
  return state.has("s") || asks(search) ? "plan" : "read";
}

/** What else an address holds: choices of figures that are no part of the question. @param {string} hash @returns {Record<string, string>} */
const othersOf = (hash) => Object.fromEntries([...new URLSearchParams(hash.replace(/^#/, ""))].filter(([key]) => !["s", "b", "view"].includes(key)));

/** The question in an address's fragment. @param {string} hash @param {string} [key] @returns {Scenario | null} */
export function fromHash(hash, key = "s") {
  const state = new URLSearchParams(hash.replace(/^#/, "")).get(key);
  if (!state) return null;
  const [version, packed = ""] = state.split(".", 2);
  if (version !== VERSION) throw new Error(`This link is of version ${version}; this page reads version ${VERSION}.`);
  try {
    const bytes = Uint8Array.from(atob(packed.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    const given = JSON.parse(new TextDecoder().decode(bytes));
    if (given && typeof given === "object" && !Array.isArray(given)) return given;
  } catch {
    // told below
  }
  throw new Error("This link is cut off or garbled. Copy the whole address.");
}

export class Store extends EventTarget {
  /** @param {{scenario: Scenario, answer: Answer, variants: Record<string, Scenario>, compared: string[]}} start */
  constructor(start) {
    super();
    /** @type {Scenario} */
    this.scenario = start.scenario;
    /** The question's own under "", its neighbours' by name: null where refused. @type {Record<string, any>} */
    this.answers = { "": start.answer };
    /** @type {Answer[]} */
    this.compared = [];
    this.variants = start.variants;
    this.models = start.compared;
    /** What the text says of the neighbouring questions, as dotted keys. @type {string[]} */
    this.said = [];
    this.error = "";
    /** Why there is no answer, by its field. @type {import("./types").Failure["error"] | null} */
    this.refused = null;
    /** @type {View} */
    this.view = viewOf(location);
    /** Choices of figures, by name. @type {Record<string, string>} */
    this.others = othersOf(location.hash);
    /** Answers that came before. @type {Map<string, Answer>} */
    this.kept = new Map();
    this.shown = "";
    /** Counts how often all answers were forgotten: what was asked before that is not kept. */
    this.era = 0;
    /** The question that `answer` is of: the asked one may be under way, or refused. @type {Scenario} */
    this.answered = start.scenario;
    this.flying = false;
    /** All that is being asked. @type {Promise<void>} */
    this.asking = Promise.resolve();
    /** Asked next, and whether the address is to tell of it. @type {{scenario: Scenario, address: boolean} | null} */
    this.next = null;
    /** @type {Scenario[]} */
    this.ahead = [];
    this.looking = false;
    this.gesture = { key: "", at: 0 };
    this.addressTimer = new Timer();
    this.neighbourTimer = new Timer();
    /** @type {AbortController | null} */
    this.abort = null;
    this.neighbours = "";
    this.keep(start.scenario, start.answer);
  }

  /** @returns {Answer} */
  get answer() {
    return this.answers[""];
  }

  /** @param {Scenario} scenario @param {Answer} answer */
  keep(scenario, answer) {
    if (this.kept.size >= MOST_KEPT) this.kept.delete(/** @type {string} */ (this.kept.keys().next().value));
    this.kept.set(keyOf(scenario), answer);
  }

  /**
   * Change the question. Changes by one control in quick succession are one step of Back.
   * @param {Scenario} change @param {string} control
   */
  change(change, control) {
    this.scenario = changed(this.scenario, change);
    const now = performance.now();
    const same = this.gesture.key === control && now - this.gesture.at < GESTURE_MS;
    this.gesture = { key: control, at: now };
    if (!same) this.step();
    this.dispatchEvent(new Event("change"));
    this.ask();
  }

  /** Begin a step of Back. It leads to the answered question, so the address tells of that first. */
  step() {
    this.flushAddress();
    history.pushState(null, "", location.href);
  }

  /** The question with its own answer, once there is one; of a refused question the last answered. */
  async standing() {
    while (this.flying) await this.asking;
    return { scenario: this.answered, answer: this.answer };
  }

  /** Replace the whole question. @param {Scenario} scenario @param {boolean} push */
  replace(scenario, push) {
    this.scenario = scenario;
    this.gesture = { key: "", at: 0 };
    if (push) this.step();
    else this.addressTimer.clear(); // it was to tell of the question that is left
    this.ask(push);
  }

  /** Ask the latest question, one at a time; what was overtaken is never asked. @param {boolean} [address] */
  async ask(address = true) {
    const kept = this.kept.get(keyOf(this.scenario));
    this.next = kept ? null : { scenario: this.scenario, address };
    this.neighbourTimer.clear();
    this.abort?.abort(); // neighbours of a question that is left
    if (kept) this.show(this.scenario, kept, address);
    else this.dispatchEvent(new Event("asking"));
    if (this.flying) return;
    this.flying = true;
    this.asking = pending(this.askLatest());
    await this.asking;
  }

  async askLatest() {
    while (this.next) {
      const { scenario, address } = this.next;
      const { era } = this;
      this.next = null;
      try {
        const found = await post(scenario);
        if (era !== this.era) continue; // asked anew
        const answered = this.shown === keyOf(this.scenario); // by one kept from before
        if (!found.error) this.keep(scenario, found);
        if (answered) continue;
        if (found.error) this.fail(found.error);
        else this.show(scenario, found, address);
      } catch {
        this.fail(GONE.error);
      }
    }
    this.flying = false;
    this.neighbourTimer.set(() => this.askNeighbours(), NEIGHBOURS_MS);
  }

  /** @param {Scenario} scenario @param {Answer} found @param {boolean} address */
  show(scenario, found, address) {
    this.error = "";
    this.refused = null;
    this.shown = keyOf(scenario);
    this.answered = scenario;
    this.answers = { ...this.answers, "": found };
    if (address) this.saveAddress();
    this.dispatchEvent(new Event("answer"));
  }

  /** @param {import("./types").Failure["error"]} error */
  fail(error) {
    this.error = refusal(error);
    this.refused = error;
    this.shown = "";
    this.dispatchEvent(new Event("answer"));
  }

  /**
   * Ask beforehand what a hand on a control may ask next, nearest first, a few at a time.
   * @param {Scenario[]} changes
   */
  async lookAhead(changes) {
    this.ahead = changes.map((change) => changed(this.scenario, change));
    if (this.looking) return;
    this.looking = true;
    try {
      while (this.ahead.length) {
        const few = this.ahead.splice(0, FEW).filter((scenario) => !this.kept.has(keyOf(scenario)));
        if (!few.length) continue;
        const { era } = this;
        const found = await pending(post(few));
        if (!Array.isArray(found)) break;
        if (era !== this.era) continue;
        few.forEach((scenario, i) => found[i].error || this.keep(scenario, found[i]));
      }
    } catch {
      // ask() tells when nobody answers
    }
    this.looking = false;
  }

  /** Whatever was answered is asked anew. */
  forget() {
    this.era += 1;
    this.kept.clear();
    this.shown = this.neighbours = "";
  }

  /** The answer to a question beside the asked one; null where there is none. @param {Scenario} change @returns {Promise<Answer | null>} */
  async peek(change) {
    const scenario = changed(this.scenario, change);
    const kept = this.kept.get(keyOf(scenario));
    if (kept) return kept;
    try {
      const { era } = this;
      const found = await pending(post(scenario));
      if (found.error) return null;
      if (era === this.era) this.keep(scenario, found);
      return found;
    } catch {
      return null; // ask() tells when the server is gone
    }
  }

  /** What the address says of the question. */
  fragment() {
    return this.answer.take_away.link.replace(/^#/, "");
  }

  saveAddress() {
    this.addressTimer.set(() => this.writeAddress(), ADDRESS_MS);
  }

  /** Write now what is to be written soon. */
  flushAddress() {
    if (!this.addressTimer.waiting) return;
    this.addressTimer.clear();
    this.writeAddress();
  }

  writeAddress() {
    const others = Object.entries(this.others).map(([key, value]) => `&${key}=${encodeURIComponent(value)}`);
    history.replaceState(null, "", `#${this.fragment()}${this.view === "plan" ? "" : `&view=${this.view}`}${others.join("")}`);
    this.dispatchEvent(new Event("address"));
  }

  /** Another way of use; Back leads to the one before. @param {View} view */
  go(view) {
    if (view === this.view) return;
    this.step();
    this.view = view;
    this.writeAddress();
    this.dispatchEvent(new Event("view"));
  }

  /** A place within a view, which is no step of Back. @param {string} key @param {string} value */
  note(key, value) {
    this.others = { ...this.others, [key]: value };
    this.writeAddress();
  }

  /** A choice of a figure; Back takes it back. @param {string} key @param {string} value */
  put(key, value) {
    this.step();
    this.others = { ...this.others, [key]: value };
    this.writeAddress();
    this.dispatchEvent(new Event("others"));
  }

  /** The address has changed by itself: its view holds, and its choices. */
  arrive() {
    this.others = othersOf(location.hash);
    this.dispatchEvent(new Event("others"));
    const view = viewOf(location);
    if (view === this.view) return;
    this.view = view;
    this.dispatchEvent(new Event("view"));
  }

  /** The neighbouring questions that the text and the comparison speak of: only what they say of them. */
  async askNeighbours() {
    const { scenario } = this;
    if (this.neighbours === keyOf(scenario)) return;
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const names = Object.keys(this.variants);
    const alike = ["context_tokens", "kv_dtype"].filter((key) => key in scenario);
    const shared = Object.fromEntries(alike.map((key) => [key, scenario[key]]));
    const compared = [scenario.model, ...this.models.filter((m) => m !== scenario.model)];
    try {
      const [varied, others] = await Promise.all([
        post(names.map((name) => changed(scenario, this.variants[name])), { signal, parts: ["scenario", "explanations", "take_away.command", ...this.said] }),
        post(compared.map((model) => ({ ...shared, model, gpu: "80GB", engine: "arithmetic" })), { signal, parts: ["scenario", "kv", "figures.price"] }),
      ]);
      if (!Array.isArray(varied) || !Array.isArray(others)) return;
      const answers = { ...this.answers };
      names.forEach((name, i) => {
        answers[name] = varied[i].error ? null : varied[i];
      });
      this.answers = answers;
      this.compared = others.filter((/** @type {any} */ a) => !a.error);
      this.neighbours = keyOf(scenario);
      this.dispatchEvent(new Event("neighbours"));
    } catch {
      // overtaken, or told by ask()
    }
  }
}
