/** A running engine beside the plan. The server sends every text and mark; this puts them in place. */

/**
 * @typedef {{x: string, width: string, y: string, height: string}} Bar
 * @typedef {{name: string, sentence: string, warnings: string[], state: string, cells: Record<string, string>, fill: string | null, history: Bar[]}} State
 */

const SVG = "http://www.w3.org/2000/svg";
const LOST = "The page's own server no longer answers: is kvroom serve still running?";

class WatchView extends HTMLElement {
  constructor() {
    super();
    /** @type {EventSource | null} */
    this.source = null;
  }

  connectedCallback() {
    this.source = new EventSource("api/watch");
    this.source.addEventListener("message", (event) => this.show(JSON.parse(event.data)));
    this.source.addEventListener("error", () => {
      this.dataset.state = "lost";
      this.write("[data-sentence]", LOST);
    });
  }

  disconnectedCallback() {
    this.source?.close();
  }

  /** Change a text only where it is another, so that nothing is read out twice. @param {string} where @param {string} text */
  write(where, text) {
    const element = this.querySelector(where);
    if (element && element.textContent !== text) element.textContent = text;
  }

  /** @param {State} s */
  show(s) {
    this.dataset.state = s.state;
    this.write("[data-name]", s.name);
    this.write("[data-sentence]", s.sentence);
    for (const [name, text] of Object.entries(s.cells)) this.write(`[data-cell="${name}"]`, text);
    const warnings = s.warnings.map((text) => Object.assign(document.createElement("li"), { textContent: text }));
    this.querySelector("[data-warnings]")?.replaceChildren(...warnings);
    if (s.fill) this.querySelector("[data-fill]")?.setAttribute("width", s.fill);
    const bars = s.history.map((bar) => {
      const rect = document.createElementNS(SVG, "rect");
      rect.setAttribute("class", "cache");
      for (const [name, value] of Object.entries(bar)) rect.setAttribute(name, value);
      return rect;
    });
    this.querySelector("[data-history]")?.replaceChildren(...bars);
  }
}

customElements.define("kv-watch", WatchView);
