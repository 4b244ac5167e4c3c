/**
 * Words of a sentence that set the figure: `<kv-set set="context_tokens=131072">128K</kv-set>`, or a
 * choice of a figure that is no part of the question: `<kv-set also="machine=H100-SXM">H100</kv-set>`.
 */
import { glide } from "./glide.js";

/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */

/** @type {Store | null} */
let asking = null;

/** What a word asks. @param {string} text @returns {Scenario} */
const changeOf = (text) => Object.fromEntries(text.split(";").map((part) => part.split("=")).map(([key, value]) => [key, /^\d+$/.test(value) ? Number(value) : value]));

/** The name of the width in which the cache is stored, where it is one. @param {import("./types").Answer["figures"]["price"]} price */
const widthOf = ({ kinds, turns }) => turns.bits.find(({ value }) => kinds.every(({ bits }) => bits === value))?.kv_dtype;

class SettingWord extends HTMLElement {
  connectedCallback() {
    if (this.firstElementChild) return;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "set" });
    button.append(...this.childNodes);
    this.append(button);
    const also = this.getAttribute("also")?.split("=");
    if (also) {
      button.addEventListener("click", () => asking?.put(also[0], also[1]));
      return;
    }
    for (const event of ["pointerenter", "focusin"]) this.addEventListener(event, () => asking?.lookAhead([this.change]));
    button.addEventListener("click", () => {
      glide();
      asking?.change(this.change, `word ${this.getAttribute("set")}`);
    });
  }

  /** Whoever sets a length or a width is shown a full house again. */
  get change() {
    return { concurrency: null, ...changeOf(this.getAttribute("set") ?? "") };
  }

  /** Marks the word that says what is shown. @param {import("./types").Answer} answer @param {Record<string, string>} others */
  told({ scenario, figures }, others) {
    const [key, value] = this.getAttribute("also")?.split("=") ?? [];
    /** @type {Scenario} */
    const shown = scenario.kv_dtype === "auto" ? { ...scenario, kv_dtype: widthOf(figures.price) } : scenario;
    const on = key ? others[key] === value : Object.entries(changeOf(this.getAttribute("set") ?? "")).every(([key, value]) => shown[key] === value);
    this.querySelector("button")?.setAttribute("aria-pressed", String(on));
  }
}

/**
 * Mark, among the words of a place, those that say what is shown there.
 * @param {ParentNode} place @param {import("./types").Answer} answer @param {Record<string, string>} others
 */
export function mark(place, answer, others) {
  for (const word of place.querySelectorAll("kv-set")) /** @type {SettingWord} */ (word).told?.(answer, others);
}

/** @param {Store} store */
export function words(store) {
  asking = store;
  const show = () => {
    mark(document, store.answer, store.others);
  };
  for (const event of ["answer", "others"]) store.addEventListener(event, show);
  show();
}

customElements.define("kv-set", SettingWord);
