/** The asked question, its answer, and its address. All numbers come from the server. */

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Scenario} Scenario */

const VERSION = "1";
const GESTURE_MS = 1000;
const ADDRESS_MS = 150;
const NEIGHBOURS_MS = 120;

/** @param {unknown} body @param {AbortSignal} [signal] */
export async function post(body, signal) {
  const reply = await fetch("/api/plan?explain=1", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  return reply.json();
}

/** Keys set to null are no longer asked. @param {Scenario} given @param {Scenario} change */
export function changed(given, change) {
  const merged = { ...given, ...change };
  if ("gpu_count" in change) delete merged.tp;
  if ("concurrency" in change && merged.workload) merged.workload = { ...merged.workload, concurrency: null };
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value != null));
}

/** The question in an address's fragment. @param {string} hash @returns {Scenario | null} */
export function fromHash(hash) {
  const state = new URLSearchParams(hash.replace(/^#/, "")).get("s");
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
    this.start = start.scenario;
    /** @type {Scenario} */
    this.scenario = start.scenario;
    /** @type {Record<string, Answer>} */
    this.answers = { "": start.answer };
    /** @type {Answer[]} */
    this.compared = [];
    this.variants = start.variants;
    this.models = start.compared;
    this.error = "";
    this.flying = false;
    /** @type {Scenario | null} */
    this.next = null;
    this.gesture = { key: "", at: 0 };
    this.addressTimer = 0;
    this.neighbourTimer = 0;
    /** @type {AbortController | null} */
    this.abort = null;
  }

  get answer() {
    return this.answers[""];
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
    if (!same) history.pushState(null, "", location.href);
    this.ask();
  }

  /** Replace the whole question. @param {Scenario} scenario @param {boolean} push */
  replace(scenario, push) {
    this.scenario = scenario;
    this.gesture = { key: "", at: 0 };
    if (push) history.pushState(null, "", location.href);
    this.ask(push);
  }

  /** Ask the latest question, one at a time; what was overtaken is never asked. @param {boolean} [address] */
  async ask(address = true) {
    this.next = this.scenario;
    clearTimeout(this.neighbourTimer);
    if (this.flying) return;
    this.flying = true;
    while (this.next) {
      const scenario = this.next;
      this.next = null;
      try {
        const found = await post(scenario);
        if (found.error) {
          this.error = `${found.error.field}: ${found.error.message}. ${found.error.fix}`;
        } else {
          this.error = "";
          this.answers = { ...this.answers, "": found };
          if (address) this.saveAddress();
        }
      } catch {
        this.error = "The server does not answer. Is kvroom serve still running?";
      }
      this.dispatchEvent(new Event("answer"));
    }
    this.flying = false;
    clearTimeout(this.neighbourTimer);
    this.neighbourTimer = setTimeout(() => this.askNeighbours(), NEIGHBOURS_MS);
  }

  saveAddress() {
    if (this.addressTimer) return;
    this.addressTimer = setTimeout(() => {
      this.addressTimer = 0;
      history.replaceState(null, "", `#${this.answer.take_away.link.replace(/^#/, "")}`);
      this.dispatchEvent(new Event("address"));
    }, ADDRESS_MS);
  }

  /** The neighbouring questions that the text and the comparison speak of, in one request. */
  async askNeighbours() {
    this.abort?.abort();
    this.abort = new AbortController();
    const { scenario } = this;
    const names = Object.keys(this.variants);
    const alike = ["context_tokens", "kv_dtype"].filter((key) => key in scenario);
    const shared = Object.fromEntries(alike.map((key) => [key, scenario[key]]));
    const compared = [scenario.model, ...this.models.filter((m) => m !== scenario.model)];
    try {
      const found = await post(
        [
          ...names.map((name) => changed(scenario, this.variants[name])),
          ...compared.map((model) => ({ ...shared, model, gpu: "80GB", engine: "arithmetic" })),
        ],
        this.abort.signal,
      );
      if (!Array.isArray(found)) return;
      const answers = { ...this.answers };
      names.forEach((name, i) => {
        if (!found[i].error) answers[name] = found[i];
      });
      this.answers = answers;
      this.compared = found.slice(names.length).filter((/** @type {any} */ a) => !a.error);
      this.dispatchEvent(new Event("neighbours"));
    } catch {
      // overtaken, or told by ask()
    }
  }
}
