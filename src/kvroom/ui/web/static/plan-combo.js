/**
 * A text field with a list to choose from: the combobox of the ARIA Authoring Practices, with list autocompletion.
 * Arrows move in the list, Enter chooses, Escape closes, typing narrows; what is typed and not in the list counts too.
 */

/**
 * @typedef {{value: any, label: string, says?: string, group?: string, words?: string, refused?: {message: string, fix: string} | null, changes?: Record<string, any>}} Option
 *   `words` find it too; `refused` says why it cannot be chosen
 * @typedef {{options: () => Promise<Option[]>, choose: (option: Option) => void, typed: (text: string) => void, speak: (text: string) => void}} How
 */

const MOST = 80;
const SAID_MS = 700;

/** As words are compared. @param {string} text */
const plain = (text) => text.toLowerCase().replace(/[\s_.:/-]+/g, " ");

export class Combo {
  /** @param {HTMLInputElement} input @param {How} how */
  constructor(input, { options, choose, typed, speak }) {
    this.input = input;
    this.load = options;
    this.choose = choose;
    this.typed = typed;
    this.speak = speak;
    /** @type {Option[]} */
    this.options = [];
    /** @type {Option[]} */
    this.shown = [];
    this.active = -1;
    /** What the field says when nobody types. */
    this.settled = input.value;
    /** Whether the field holds what nobody has taken yet. */
    this.dirty = false;
    this.asked = 0;
    this.telling = 0;
    this.list = document.createElement("ul");
    this.list.id = `${input.id}-list`;
    this.list.className = "options";
    this.list.hidden = true;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", input.labels?.[0]?.textContent ?? "");
    for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "false", "aria-controls": this.list.id, "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" })) input.setAttribute(name, value);
    input.after(this.list);
    input.addEventListener("input", () => this.open(true));
    input.addEventListener("click", () => this.open(false));
    input.addEventListener("focus", () => input.select());
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("blur", () => this.commit());
    input.addEventListener("change", () => {
      this.dirty = true;
      this.commit();
    });
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const at = /** @type {HTMLElement} */ (event.target).closest("li[data-at]");
      if (at) this.take(Number(at.getAttribute("data-at")));
    });
  }

  get expanded() {
    return !this.list.hidden;
  }

  /** Say what is asked now; not under a hand that types. @param {string} text */
  set(text) {
    this.settled = text;
    if (document.activeElement === this.input && (this.expanded || this.input.value !== text && this.dirty)) return;
    if (this.input.value !== text) this.input.value = text;
    this.dirty = false;
  }

  /** @param {boolean} narrowed by what is typed */
  async open(narrowed) {
    const mine = ++this.asked;
    this.dirty = narrowed;
    this.options = await this.load();
    if (mine !== this.asked || document.activeElement !== this.input) return;
    const words = narrowed ? plain(this.input.value).split(" ").filter((word) => word) : [];
    const found = this.options.filter((option) => {
      const text = plain(`${option.label} ${option.words ?? ""} ${option.group ?? ""}`);
      return words.every((word) => text.includes(word));
    });
    const first = words.join(" ");
    // what begins so stands before what only holds it
    this.shown = (first ? [...found].sort((a, b) => Number(plain(b.label).startsWith(first)) - Number(plain(a.label).startsWith(first))) : found).slice(0, MOST);
    this.active = narrowed ? this.shown.findIndex((option) => !option.refused) : this.shown.findIndex((option) => option.label === this.settled);
    this.draw(found.length);
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.mark();
    if (narrowed) this.tell(found.length ? `${found.length} of ${this.options.length}` : "none in the list");
  }

  close() {
    this.asked += 1;
    this.list.hidden = true;
    this.active = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  /** @param {number} found */
  draw(found) {
    const items = [];
    let group = "";
    for (const [at, option] of this.shown.entries()) {
      if (option.group && option.group !== group) {
        group = option.group;
        const title = document.createElement("li");
        title.className = "group";
        title.setAttribute("role", "presentation");
        title.textContent = group;
        items.push(title);
      }
      const item = document.createElement("li");
      item.id = `${this.list.id}-${at}`;
      item.dataset.at = String(at);
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      if (option.refused) item.setAttribute("aria-disabled", "true");
      const name = document.createElement("b");
      name.textContent = option.label;
      item.append(name);
      const says = option.refused ? `${option.refused.message}${option.refused.fix ? `: ${option.refused.fix}` : ""}` : option.says;
      if (says) {
        const more = document.createElement("span");
        more.textContent = says;
        item.append(" ", more);
      }
      items.push(item);
    }
    if (found > this.shown.length || !found) {
      const rest = document.createElement("li");
      rest.className = "group";
      rest.setAttribute("role", "presentation");
      rest.textContent = found ? `${found - this.shown.length} more: type to narrow` : "Not in the list. Enter asks for it as typed.";
      items.push(rest);
    }
    this.list.replaceChildren(...items);
  }

  mark() {
    for (const item of this.list.querySelectorAll("[role=option]")) item.setAttribute("aria-selected", String(Number(item.getAttribute("data-at")) === this.active));
    if (this.active < 0) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    const now = document.getElementById(`${this.list.id}-${this.active}`);
    if (!now) return;
    this.input.setAttribute("aria-activedescendant", now.id);
    const box = this.list;
    if (now.offsetTop < box.scrollTop) box.scrollTop = now.offsetTop;
    else if (now.offsetTop + now.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = now.offsetTop + now.offsetHeight - box.clientHeight;
  }

  /** @param {KeyboardEvent} event */
  async key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step) {
      event.preventDefault();
      if (!this.expanded) await this.open(false);
      else if (this.shown.length) this.active = Math.max(0, Math.min(this.shown.length - 1, (this.active < 0 ? (step > 0 ? -1 : this.shown.length) : this.active) + step));
      if (this.active < 0 && this.shown.length) this.active = step > 0 ? 0 : this.shown.length - 1;
      this.mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.expanded && this.active >= 0) this.take(this.active);
      else this.commit();
    } else if (event.key === "Escape") {
      if (this.expanded || this.dirty) event.stopPropagation();
      this.close();
      this.dirty = false;
      this.input.value = this.settled;
    } else if (event.key === "Tab") this.commit();
  }

  /** @param {number} at */
  take(at) {
    const option = this.shown[at];
    if (!option) return;
    if (option.refused) {
      this.speak(`${option.refused.message}. ${option.refused.fix}`);
      return;
    }
    this.close();
    this.dirty = false;
    this.input.value = this.settled = option.label;
    this.choose(option);
  }

  /** What is typed counts: as the option that it names, else as it stands. */
  commit() {
    const text = this.input.value.trim();
    const dirty = this.dirty && text !== this.settled;
    this.close();
    this.dirty = false;
    if (!dirty) {
      this.input.value = this.settled;
      return;
    }
    const named = this.options.find((option) => plain(option.label) === plain(text) || plain(String(option.value)) === plain(text));
    if (named && !named.refused) {
      this.input.value = this.settled = named.label;
      this.choose(named);
    } else this.typed(text);
  }

  /** @param {string} text */
  tell(text) {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.expanded && this.speak(text), SAID_MS);
  }
}
