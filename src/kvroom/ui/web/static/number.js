import { settle } from "./roving.js";
import { at, cards, formats, gb, gib, grouped, memory, modelName, said } from "./text.js";

/** @typedef {import("./types").Answer} Answer */

/** @type {Record<string, Answer | null>} */
let answers = {};

/** Give every live number of the text its new answer. @param {Record<string, Answer | null>} found */
export function tell(found) {
  answers = found;
  for (const element of document.querySelectorAll("kv-n, kv-name")) /** @type {any} */ (element).update();
  settle();
}

/** A figure in a sentence: always current; opens its formula, exact value and source. */
class LiveNumber extends HTMLElement {
  constructor() {
    super();
    /** @type {Answer | null} */
    this.own = null;
  }

  /** @param {Answer} answer */
  set answer(answer) {
    this.own = answer;
    if (this.isConnected) this.update();
  }

  /** Null where its question is refused, undefined where it is yet to come. */
  get source() {
    return this.own ?? answers[this.getAttribute("of") ?? ""];
  }

  connectedCallback() {
    this.tabIndex = 0;
    settle();
    this.setAttribute("role", "button");
    this.setAttribute("aria-haspopup", "dialog");
    this.addEventListener("click", () => open(this));
    this.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(this);
      }
    });
    this.update();
  }

  update() {
    if (this.source === undefined) return;
    const text = said(this.source, this.getAttribute("figure") ?? "", this.getAttribute("as") ?? "text");
    if (super.textContent !== text) super.textContent = text;
  }
}

/** The model's or the cards' name in a sentence. */
class LiveName extends HTMLElement {
  connectedCallback() {
    this.update();
  }

  update() {
    const scenario = answers[""]?.scenario;
    if (scenario) this.textContent = this.getAttribute("of") === "model" ? modelName(scenario) : cards(scenario);
  }
}

/** @type {HTMLElement | null} */
let opened = null;

/** @param {string} tag @param {string} text @param {string} [name] */
function make(tag, text, name) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

/** @param {LiveNumber} target */
function open(target) {
  const answer = target.source;
  if (!answer) return;
  const form = target.getAttribute("as") ?? "text";
  const asked = target.getAttribute("of");
  /** @param {string} figure @param {string[]} trail the figures that led to this one */
  const step = (figure, trail) => {
    const parts = told(answer, figure, trail.length ? "" : form);
    const found = answer.explanations.find((e) => e.figure === figure);
    if (found?.of?.length) {
      const list = document.createElement("ul");
      for (const key of found.of) {
        const input = answer.explanations.find((e) => e.figure === key);
        if (!input) continue;
        const item = document.createElement("li");
        const button = make("button", `${input.label}: ${written(input)}`, "follows");
        button.addEventListener("click", () => step(key, [...trail, figure]));
        item.append(button);
        list.append(item);
      }
      parts.push(make("h4", "It follows from"), list);
    }
    if (trail.length) {
      const back = make("button", "← Back", "plain");
      back.addEventListener("click", () => step(trail[trail.length - 1], trail.slice(0, -1)));
      parts.push(back);
    }
    if (asked) parts.push(make("p", `Of a neighbouring question: ${answer.take_away.command}`, "soft"));
    show(target, "Where this number comes from", parts);
  };
  step(target.getAttribute("figure") ?? "", []);
}

/** A value with its unit. @param {import("./types").Explanation} e */
const written = ({ value, unit }) => {
  if (unit === "bytes") return memory(value);
  if (unit === "bytes/s") return formats.rate(value);
  if (unit === "s") return formats.seconds(value);
  return `${Number.isInteger(value) && value < 1e9 ? grouped(value) : value < 1e6 ? formats.requests(value) : formats.short(value)} ${unit}`.trim();
};

/** What is known of a figure. @param {Answer} answer @param {string} figure @param {string} form */
function told(answer, figure, form) {
  const found = answer.explanations.find((e) => e.figure === figure);
  const value = form ? at(answer, figure) : found?.value;
  const rows = document.createElement("dl");
  const row = (/** @type {string} */ name, /** @type {string} */ text) => {
    if (text) rows.append(make("dt", name), make("dd", text));
  };
  const bytes = found ? found.unit === "bytes" : /bytes/.test(figure);
  const unit = found?.unit ?? (bytes ? "bytes" : "");
  if (typeof value === "number") {
    row("exactly", bytes ? `${grouped(value)} bytes` : `${grouped(value)} ${unit}`.trim());
    if (bytes) row("in units", `${gb(value)} = ${gib(value)}`);
  } else row("value", value == null ? "none" : formats[form || "text"](value));
  row("formula", found?.formula ?? "");
  if (found && found.numbers !== grouped(found.value)) row("with numbers", found.numbers);
  row("source", found?.source ?? (figure.startsWith("scenario.") ? "the question asked" : "the Plan"));
  row("key", figure);
  return [make("h3", found?.label ?? figure.split(".").pop()?.replace(/_/g, " ") ?? ""), rows];
}

/** Open the panel beside an element. @param {HTMLElement} target @param {string} name @param {HTMLElement[]} parts */
export function show(target, name, parts) {
  opened = target;
  const box = panel();
  const close = make("button", "Close", "plain");
  close.addEventListener("click", () => box.hidePopover());
  box.setAttribute("aria-label", name);
  box.replaceChildren(...parts, close);
  if (!box.matches(":popover-open")) box.showPopover();
  place(box, target);
  close.focus({ preventScroll: true });
}

/** @param {HTMLElement} box @param {HTMLElement} target */
function place(box, target) {
  const near = target.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = box;
  const below = near.bottom + 8 + height < innerHeight || near.top < height + 8;
  box.style.left = `${Math.max(8, Math.min(near.left, innerWidth - width - 8))}px`;
  box.style.top = `${Math.max(8, below ? Math.min(near.bottom + 8, innerHeight - height - 8) : near.top - height - 8)}px`;
}

function panel() {
  const old = document.getElementById("explain");
  if (old) return old;
  const box = Object.assign(document.createElement("div"), { id: "explain", popover: "auto" });
  box.setAttribute("role", "dialog");
  box.addEventListener("toggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState === "closed") {
      if (box.contains(document.activeElement) || document.activeElement === document.body) opened?.focus();
      opened = null;
    }
  });
  (opened?.closest(".kvroom") ?? document.body).append(box); // in a notebook its cell holds the sheet
  return box;
}

customElements.define("kv-n", LiveNumber);
customElements.define("kv-name", LiveName);
