/**
 * A number in a sentence that can be dragged, or stepped with the arrow keys. It says `turn` with the
 * step chosen; whoever listens asks the question anew.
 */
class DragNumber extends HTMLElement {
  constructor() {
    super();
    /** @type {number[]} */
    this.steps = [];
    this.value = 0;
    this.name = "";
    this.from = { x: 0, index: 0 };
  }

  connectedCallback() {
    this.tabIndex = 0;
    this.setAttribute("role", "spinbutton");
    this.addEventListener("keydown", (event) => this.key(event));
    this.addEventListener("pointerdown", (event) => {
      this.setPointerCapture(event.pointerId);
      this.from = { x: event.clientX, index: this.index };
    });
    this.addEventListener("pointermove", (event) => {
      if (!this.hasPointerCapture(event.pointerId)) return;
      const pixels = this.steps.length > 20 ? 4 : 26;
      this.turn(this.from.index + Math.round((event.clientX - this.from.x) / pixels));
    });
  }

  /** The nearest step. */
  get index() {
    return this.steps.reduce((best, step, i) => (Math.abs(step - this.value) < Math.abs(this.steps[best] - this.value) ? i : best), 0);
  }

  /** @param {{steps: number[], value: number, name: string}} data */
  set data({ steps, value, name }) {
    this.steps = steps;
    this.value = value;
    this.name = name;
    this.textContent = value.toLocaleString("en-US");
    this.setAttribute("aria-label", name);
    this.setAttribute("aria-valuenow", String(value));
    this.setAttribute("aria-valuemin", String(Math.min(...steps)));
    this.setAttribute("aria-valuemax", String(Math.max(...steps)));
  }

  /** @param {number} index */
  turn(index) {
    const value = this.steps[Math.max(0, Math.min(this.steps.length - 1, index))];
    if (value === this.value) return;
    this.value = value;
    this.dispatchEvent(new CustomEvent("turn", { bubbles: true, detail: { name: this.name, value } }));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const to = { ArrowRight: this.index + 1, ArrowUp: this.index + 1, ArrowLeft: this.index - 1, ArrowDown: this.index - 1, PageUp: this.index + 10, PageDown: this.index - 10, Home: 0, End: this.steps.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.turn(to);
  }
}

customElements.define("kv-drag", DragNumber);
