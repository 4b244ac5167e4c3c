/**
 * A figure that stays in view while paragraphs act on it. Each paragraph has a scene: the page's question with
 * some keys changed. The reader's own act (a word, a slider, a button) shows the question itself until the next
 * paragraph comes. No scene changes the question or the address.
 */
import { glide } from "./glide.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */

/** Where a paragraph must be to act: a line across the screen, so far down it. */
const LINE = 0.63;
const ACROSS = "-62% 0px -37% 0px";

/** A paragraph that comes with the reader's act (Tab scrolls to it) does not take the act back. */
const ACT_MS = 800;

export class Stage {
  /**
   * @param {HTMLElement} story its paragraphs are `.beat[data-scene]`
   * @param {Store} store
   * @param {{scene: (name: string) => Scenario | null, draw: (answer: Answer, name: string) => void, act?: (name: string) => void}} how
   *   `scene` what is changed in it (null: nothing), `draw` the figure, `act` what a paragraph does beside
   */
  constructor(story, store, { scene, draw, act = () => {} }) {
    this.store = store;
    this.scene = scene;
    this.draw = draw;
    /** @type {HTMLElement[]} */
    this.beats = [...story.querySelectorAll(".beat")].map((beat) => /** @type {HTMLElement} */ (beat));
    this.name = this.beats[0]?.dataset.scene ?? "";
    /** The reader has acted since the paragraph came. */
    this.held = false;
    this.acted = -Infinity;
    this.turn = 0;
    const looking = new IntersectionObserver(() => {
      // The one on the line; who scrolls past several at once has the last above it.
      const beat = this.beats.findLast((one) => one.getBoundingClientRect().top <= innerHeight * LINE);
      if (!beat || story.getBoundingClientRect().bottom < 0) return;
      for (const one of this.beats) one.classList.toggle("acts", one === beat);
      const name = beat.dataset.scene ?? "";
      act(name);
      if (name === this.name) return;
      this.name = name;
      this.held = performance.now() - this.acted < ACT_MS;
      glide();
      this.show();
    }, { rootMargin: ACROSS });
    for (const beat of this.beats) looking.observe(beat);
    store.addEventListener("change", () => {
      this.held = true;
      this.acted = performance.now();
    });
    for (const event of ["answer", "view"]) store.addEventListener(event, () => this.show());
  }

  /** Draw the scene as it is now; a later one wins. */
  async show() {
    const turn = ++this.turn;
    const change = this.held || this.store.error || this.store.view !== "read" ? null : this.scene(this.name);
    const answer = change ? await this.store.peek(change) : this.store.answer;
    if (turn === this.turn && answer) this.draw(answer, this.held ? "" : this.name);
  }
}
