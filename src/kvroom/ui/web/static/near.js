/** Figures below the fold: each is loaded, and asks, when it comes near the screen. */

import { Timer, pending } from "./pending.js";

/** @typedef {import("./types").Scenario} Scenario */

const NEAR = "700px";

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
  constructor(element, { load, ask = async (asked) => asked, show, rest = 0 }) {
    this.load = load;
    this.ask = ask;
    this.show = show;
    this.rest = rest;
    this.near = false;
    /** @type {any} */
    this.wanted = null;
    this.asked = "";
    this.timer = new Timer();
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
    try {
      const [answer, module] = await pending(Promise.all([this.ask(this.wanted, signal), this.load()]));
      if (!signal.aborted) this.show(answer, module);
    } catch (error) {
      if (!signal.aborted) this.asked = ""; // asked anew when it comes near again
    }
  }
}
