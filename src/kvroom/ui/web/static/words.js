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

  /** @param {Scenario} scenario @param {Record<string, string>} others */
  told(scenario, others) {
    const [key, value] = this.getAttribute("also")?.split("=") ?? [];
    const on = key ? others[key] === value : Object.entries(changeOf(this.getAttribute("set") ?? "")).every(([key, value]) => scenario[key] === value);
    this.querySelector("button")?.setAttribute("aria-pressed", String(on));
  }
}

/** @param {Store} store */
export function words(store) {
  asking = store;
  const show = () => {
    for (const word of document.querySelectorAll("kv-set")) /** @type {SettingWord} */ (word).told(store.answer.scenario, store.others);
  };
  for (const event of ["answer", "others"]) store.addEventListener(event, show);
  show();
}

customElements.define("kv-set", SettingWord);
