import { LitElement, html, nothing } from "./vendor/lit.js";
import { ensurePatterns } from "./patterns.js";
import { download, standalone, toCsv, toPng } from "./export.js";

/** @typedef {import("./types").Answer} Answer */

/**
 * What all figures share: a name in words, the picture, its key, a table of the same numbers, exports.
 * A figure is given `answer` (the JSON of one question) and draws; it never computes.
 */
export class Figure extends LitElement {
  static properties = { answer: { attribute: false }, tabled: { state: true } };

  constructor() {
    super();
    /** @type {Answer | null} */
    this.answer = null;
    this.tabled = false;
  }

  connectedCallback() {
    ensurePatterns();
    super.connectedCallback();
  }

  createRenderRoot() {
    return this; // the page's sheet styles it; a notebook links figures.css
  }

  /** One sentence that says what the picture shows. */
  sentence() {
    return "";
  }

  /** The picture. @returns {unknown} */
  picture() {
    return nothing;
  }

  /** The key and whatever else belongs under the picture. @returns {unknown} */
  key() {
    return nothing;
  }

  /** The words under the picture. @returns {unknown} */
  caption() {
    return nothing;
  }

  /** The same numbers as a table. @returns {import("./types").Table} */
  table() {
    return { head: [], rows: [] };
  }

  /** The name of its files. */
  get file() {
    return `kvroom-${this.localName.replace("kv-", "")}`;
  }

  /** The drawings, without those of the key. @returns {SVGSVGElement[]} */
  get drawings() {
    return [...this.querySelectorAll("svg")].filter((svg) => !svg.closest(".key"));
  }

  svgSource() {
    return standalone(this.drawings, this.sentence(), `${location.origin}${location.pathname}${location.hash}`);
  }

  async save(/** @type {"svg" | "png" | "csv"} */ kind) {
    if (kind === "csv") download(new Blob([toCsv(this.table())], { type: "text/csv" }), `${this.file}.csv`);
    else if (kind === "svg") download(new Blob([this.svgSource()], { type: "image/svg+xml" }), `${this.file}.svg`);
    else download(await toPng(this.svgSource()), `${this.file}.png`);
  }

  render() {
    if (!this.answer) return nothing;
    return html`<figure role="group" aria-label=${this.sentence()}>
      ${this.picture()} ${this.key()}
      <figcaption>${this.caption()}</figcaption>
      ${this.menu()}
      ${this.tabled ? this.tableView() : nothing}
    </figure>`;
  }

  /** One menu for all that a figure can be taken away as. */
  menu() {
    const close = (/** @type {any} */ event) => event.currentTarget.closest("details").removeAttribute("open");
    const escape = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      close(event);
      /** @type {any} */ (event.currentTarget).querySelector("summary").focus();
    };
    const leave = (/** @type {any} */ event) => event.currentTarget.contains(event.relatedTarget) || close(event);
    const item = (/** @type {string} */ name, /** @type {() => void} */ act) => html`<button type="button" @click=${(/** @type {any} */ event) => (act(), close(event))}>${name}</button>`;
    return html`<details class="menu" @keydown=${escape} @focusout=${leave}><summary>Save or table</summary>
      <div role="group" aria-label="This figure">
        ${item(this.tabled ? "Hide the table" : "Show as a table", () => (this.tabled = !this.tabled))}
        ${["SVG", "PNG", "CSV"].map((kind) => item(`Save as ${kind}`, () => this.save(/** @type {any} */ (kind.toLowerCase()))))}
      </div></details>`;
  }

  tableView() {
    const { head, rows } = this.table();
    return html`<div class="table" tabindex="0" role="region" aria-label=${`The figure as a table: ${this.localName.replace("kv-", "")}`}>
      <table>
        <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => (i ? html`<td>${show(cell)}</td>` : html`<th scope="row">${show(cell)}</th>`))}</tr>`)}</tbody>
      </table>
    </div>`;
  }
}

/** A figure that draws by its own width, in pixels. */
export class WideFigure extends Figure {
  static properties = { ...Figure.properties, width: { state: true } };

  constructor() {
    super();
    this.width = 1000;
    this.resizing = new ResizeObserver(([entry]) => (this.width = Math.round(entry.contentRect.width) || this.width));
  }

  connectedCallback() {
    super.connectedCallback();
    this.resizing.observe(this);
  }

  disconnectedCallback() {
    this.resizing.disconnect();
    super.disconnectedCallback();
  }
}

/** @param {string | number} cell */
const show = (cell) => (typeof cell === "number" ? cell.toLocaleString("en-US", { maximumFractionDigits: 1 }) : cell);

/** A live number inside a figure. @param {Answer} answer @param {string} path @param {string} form */
export const number = (answer, path, form) => html`<kv-n figure=${path} as=${form} .answer=${answer}></kv-n>`;
