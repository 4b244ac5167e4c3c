import { LitElement, html, nothing } from "./vendor/lit.js";
import { number } from "./figure.js";
import { at, cards, modelName, said } from "./text.js";

/** @typedef {import("./types").Answer} Answer */

/** What of the two questions is set against each other: words, key, how it is written. */
const FIGURES = [
  ["Requests with room", "figures.memory.room", "count"],
  ["One request", "figures.memory.request_bytes", "memory"],
  ["One token of cache", "kv.bytes_per_token", "memory"],
  ["Weights on all cards", "figures.memory.weights_bytes", "memory"],
  ["Room for cache on all cards", "figures.memory.kv_bytes", "memory"],
  ["Read for each token written", "figures.step.bytes_per_output_token", "memory"],
  ["A step", "step.seconds", "seconds"],
  ["A million output tokens", "cost.usd_per_million_output_tokens", "usd"],
];
const SHOWN = new Set(["model", "gpu", "gpu_count"]);

/** Two answers as a table: what was asked otherwise, what comes out otherwise. `answers` are [A, B]. */
export class Versus extends LitElement {
  static properties = { answers: { attribute: false } };

  constructor() {
    super();
    /** @type {[Answer, Answer] | null} */
    this.answers = null;
  }

  createRenderRoot() {
    return this;
  }

  /** Keys of the question in which the two differ. @param {Answer} a @param {Answer} b */
  asked(a, b) {
    const differ = (/** @type {string} */ key) => JSON.stringify(a.scenario[key]) !== JSON.stringify(b.scenario[key]);
    return [...new Set([...Object.keys(a.scenario), ...Object.keys(b.scenario)])].filter((key) => !SHOWN.has(key) && key !== "tp" && differ(key));
  }

  render() {
    if (!this.answers) return nothing;
    const [a, b] = this.answers;
    const row = (/** @type {string} */ name, /** @type {unknown} */ left, /** @type {unknown} */ right, /** @type {boolean} */ differs) =>
      html`<tr class=${differs ? "differs" : ""}><th scope="row">${name}${differs ? html` <b title="differs">≠</b>` : nothing}</th><td>${left}</td><td>${right}</td></tr>`;
    const plain = (/** @type {any} */ v) => (v == null ? "not said" : typeof v === "object" ? JSON.stringify(v) : typeof v === "number" ? v.toLocaleString("en-US") : String(v));
    return html`<h2 id="versus-title">Two questions</h2>
      <div class="table results" tabindex="0" role="region" aria-labelledby="versus-title"><table>
        <thead><tr><th scope="col">Asked and answered</th><th scope="col">A</th><th scope="col">B</th></tr></thead>
        <tbody>
          ${row("Model", modelName(a.scenario), modelName(b.scenario), JSON.stringify(a.scenario.model) !== JSON.stringify(b.scenario.model))}
          ${row("Cards", cards(a.scenario), cards(b.scenario), cards(a.scenario) !== cards(b.scenario))}
          ${this.asked(a, b).map((key) => row(key.replace(/_/g, " "), plain(a.scenario[key]), plain(b.scenario[key]), true))}
          ${FIGURES.filter(([, path]) => at(a, path) != null || at(b, path) != null).map(([name, path, form]) => row(name, number(a, path, form), number(b, path, form), said(a, path, form) !== said(b, path, form)))}
        </tbody>
      </table></div>
      <details class="small"><summary>The same on the command line</summary><code>kvroom compare '${this.link(a)}' '${this.link(b)}'</code></details>`;
  }

  /** @param {Answer} answer */
  link(answer) {
    return `${location.origin}/#${answer.take_away.link.replace(/^#/, "")}`;
  }
}

customElements.define("kv-versus", Versus);
