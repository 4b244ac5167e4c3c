/** Figures below the fold: each is loaded, and asks, when it comes near the screen. */

import { GONE, refusal } from "./ask.js";
import { Timer, pending } from "./pending.js";

/** @typedef {import("./types").Scenario} Scenario */

const NEAR = "700px";
/** Whoever waits longer is told. */
const LATE_MS = 400;
/** What a hand passes over on its way is not asked. */
const REST_MS = 120;

/**
 * Asks a section's question once it is near and whenever it changes; the latest answer wins.
 * @template A, M
 */
export class Near {
  /**
   * @param {HTMLElement} element what must come near
   * @param {{load: () => Promise<M>, ask?: (asked: any, signal: AbortSignal) => Promise<A>, show: (answer: A, module: M) => void, rest?: number}} how
   *   `load` its module, `ask` its question (without it the question is what is shown), `show` the answer;
   *   `rest` milliseconds that a question must stand
   */
  constructor(element, { load, ask = async (asked) => asked, show, rest = REST_MS }) {
    this.load = load;
    this.ask = ask;
    this.show = show;
    this.rest = rest;
    this.element = element;
    this.near = false;
    /** @type {any} */
    this.wanted = null;
    this.asked = "";
    this.timer = new Timer();
    /** @type {HTMLElement | null} */
    this.said = null;
    /** @type {AbortController | null} */
    this.abort = null;
    new IntersectionObserver(([entry]) => {
      this.near = entry.isIntersecting;
      this.go();
    }, { rootMargin: NEAR }).observe(element);
    // A page that is printed has everything near.
    addEventListener("beforeprint", () => {
      this.near = true;
      this.go();
    });
  }

  /** @param {any} question any JSON value */
  want(question) {
    this.wanted = question;
    this.timer.set(() => this.go(), this.rest);
  }

  async go() {
    const key = JSON.stringify([this.wanted, document.documentElement.dataset.units]);
    if (!this.near || this.wanted == null || key === this.asked) return;
    this.asked = key;
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const late = setTimeout(() => signal.aborted || this.say(/** @type {any} */ (this.element).busy ? "" : "Working it out …", "wait"), LATE_MS);
    try {
      const [answer, module] = await pending(Promise.all([this.ask(this.wanted, signal), this.load()]));
      if (signal.aborted) return;
      this.say("");
      this.show(answer, module);
    } catch (error) {
      if (signal.aborted) return;
      this.asked = ""; // asked anew when it comes near again, or by hand
      this.say(refusal(GONE.error), "failed");
    } finally {
      clearTimeout(late);
    }
  }

  /**
   * What the reader waits for (nothing, where the figure says so itself), or why there is nothing, and another
   * try; the figure pales meanwhile.
   * @param {string} text @param {"" | "wait" | "failed"} [how]
   */
  say(text, how = "") {
    const failed = how === "failed";
    this.element.classList.toggle("pales", how !== "");
    if (!this.said && !text) return;
    if (!this.said) {
      this.said = Object.assign(document.createElement("p"), { className: "near-said" });
      this.said.setAttribute("role", "status");
      this.element.before(this.said);
    }
    this.said.hidden = !text;
    this.said.classList.toggle("fault", failed);
    this.said.replaceChildren(text);
    if (!failed) return;
    const again = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Try again" });
    again.addEventListener("click", () => {
      this.near = true;
      this.go();
    });
    this.said.append(" ", again);
  }
}
