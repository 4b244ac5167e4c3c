/** Anything dropped or pasted fills the fields, and says what was taken and what was not. */
import { GONE, ask, refusal } from "./ask.js";
import { pending } from "./pending.js";

/** @typedef {import("./store.js").Store} Store */

/** Longest file sent; of a model's file its first bytes hold the header. */
const MOST_BYTES = 2 ** 25;
const root = document.documentElement;
/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

/** A value in a few words. @param {any} value */
function short(value) {
  if (value == null) return "not said";
  const text = typeof value === "object" ? (value.name ?? (value.config ? "a config" : JSON.stringify(value))) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

export class Intake {
  /**
   * @param {Store} store
   * @param {{speak: (text: string) => void, label: (key: string) => string, trace: (file: File | null) => void}} page
   *   `label` names the field of a key, `trace` is given a trace to be played
   */
  constructor(store, { speak, label, trace }) {
    this.store = store;
    this.speak = speak;
    this.label = label;
    this.trace = trace;
    this.said = byId("taken");
    const paste = byId("paste");
    paste.addEventListener("paste", () => setTimeout(() => this.text(paste.value)));
    byId("paste-read").addEventListener("click", () => this.text(paste.value));
    paste.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.text(paste.value);
    });
    byId("any-file").addEventListener("change", (/** @type {any} */ event) => {
      if (event.target.files[0]) this.file(event.target.files[0]);
      event.target.value = "";
    });
    let inside = 0;
    const here = () => store.view === "plan";
    addEventListener("dragenter", (event) => {
      if (!here() || !event.dataTransfer?.types.some((type) => type === "Files" || type === "text/plain")) return;
      inside += 1;
      root.classList.add("dropping");
    });
    addEventListener("dragleave", () => {
      inside = Math.max(0, inside - 1);
      if (!inside) root.classList.remove("dropping");
    });
    addEventListener("dragover", (event) => here() && event.preventDefault());
    addEventListener("drop", (event) => {
      inside = 0;
      root.classList.remove("dropping");
      if (!here() || event.defaultPrevented) return;
      event.preventDefault();
      const file = event.dataTransfer?.files[0];
      if (file) this.file(file);
      else this.text(event.dataTransfer?.getData("text/plain") ?? "");
    });
    addEventListener("paste", (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (!here() || target.closest?.("input, textarea, select, [contenteditable]")) return;
      const file = event.clipboardData?.files[0];
      if (file) this.file(file);
      else this.text(event.clipboardData?.getData("text/plain") ?? "");
    });
  }

  /** @param {string} text */
  text(text) {
    if (text.trim()) this.take(new File([text], "pasted"));
  }

  /** @param {File} file */
  file(file) {
    this.take(file);
  }

  /** @param {File} file */
  async take(file) {
    const whole = file.slice(0, MOST_BYTES);
    this.said.hidden = false;
    this.said.replaceChildren(line("p", `Reading ${file.name}…`));
    const standing = await this.store.standing();
    const link = standing.answer.take_away.link.replace(/^.*s=/, "");
    const path = `api/take?s=${link}&name=${encodeURIComponent(file.name.slice(0, 80))}`;
    const found = await pending(ask(path, whole, { type: "application/octet-stream" })).catch(() => GONE);
    if (found.error) {
      const why = refusal(found.error);
      this.said.replaceChildren(line("p", why, "err"));
      this.speak(why);
      return;
    }
    if (file.size > MOST_BYTES && !["gguf", "safetensors"].includes(found.kind)) found.left.push("only the first 32 MiB of the file were read");
    this.trace(found.kind === "trace" ? file : null);
    this.store.replace(found.scenario, true);
    this.tell(found);
    if (found.kind === "log") byId("reality").dispatchEvent(new CustomEvent("file", { detail: { file } }));
  }

  /** @param {any} found */
  tell(found) {
    const head = found.taken.length ? `Taken from ${found.title}:` : `${found.title} says nothing that the fields do not.`;
    const parts = [line("p", head, "head")];
    if (found.taken.length) {
      const list = document.createElement("ul");
      for (const { key, value, before } of found.taken) list.append(line("li", `${this.label(key)}: ${short(value)}${before == null ? "" : ` (was ${short(before)})`}`));
      parts.push(list);
    }
    if (found.left.length) {
      parts.push(line("p", "Not taken, or assumed:", "head"));
      const list = document.createElement("ul");
      for (const text of found.left) list.append(line("li", text));
      parts.push(list);
    }
    if (found.figure?.file?.difference) {
      const said = line("p", `${found.figure.file.difference.sentence} `);
      said.append(Object.assign(document.createElement("a"), { href: "#reality", textContent: "The log against the prediction" }));
      parts.push(said);
    }
    const away = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Put away" });
    away.addEventListener("click", () => {
      this.said.hidden = true;
      byId("paste").value = "";
      byId("paste").focus();
    });
    parts.push(away);
    this.said.replaceChildren(...parts);
    this.speak(`${head} ${found.taken.length} fields, ${found.left.length} notes.`);
  }
}

/** @param {string} tag @param {string} text @param {string} [name] */
function line(tag, text, name) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}
