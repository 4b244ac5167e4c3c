import { LitElement, html, nothing } from "./vendor/lit.js";
import { GONE, ask, refusal } from "./ask.js";
import { download } from "./export.js";
import { pending } from "./pending.js";
import { settle } from "./roving.js";

/** @typedef {import("./types").Answer} Answer */

/** The same question as command, Python, link, JSON and engine flags; every figure with its source. */
export class TakeAway extends LitElement {
  static properties = { answer: { attribute: false }, copied: { state: true }, opened: { state: true }, engines: { state: true } };

  constructor() {
    super();
    /** @type {Answer | null} */
    this.answer = null;
    this.copied = "";
    /** What is unfolded; the rest is not written. @type {Record<string, boolean>} */
    this.opened = {};
    /** Engines' own commands for the question they were asked for, or why there are none. @type {{of: unknown, lines: Record<string, string>, error: string}} */
    this.engines = { of: null, lines: {}, error: "" };
  }

  /** @param {string} name @param {string} summary @param {() => unknown} inner */
  fold(name, summary, inner) {
    const toggle = (/** @type {any} */ event) => (this.opened = { ...this.opened, [name]: event.target.open });
    return html`<details @toggle=${toggle}><summary>${summary}</summary>${this.opened[name] ? inner() : nothing}</details>`;
  }

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    this.replaceChildren();
    super.connectedCallback();
  }

  updated() {
    settle();
    if (this.opened.engines && this.answer && this.engines.of !== this.a.scenario) this.askEngines();
  }

  /** Asked once they are looked at: every engine is loaded for it. */
  async askEngines() {
    const of = this.a.scenario;
    this.engines = { of, lines: this.engines.lines, error: "" };
    const found = await pending(ask("api/commands", of)).catch(() => GONE);
    if (this.engines.of !== of) return;
    this.engines = found.error ? { of, lines: {}, error: refusal(found.error) } : { of, lines: found, error: "" };
  }

  get a() {
    return /** @type {Answer} */ (this.answer);
  }

  /** The Plan alone, as the command line prints it. */
  get json() {
    const { explanations, figures, take_away, ...plan } = this.a;
    return JSON.stringify(plan, null, 2);
  }

  async copy(/** @type {string} */ name, /** @type {string} */ text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return; // no clipboard here: the text stands below to be selected
    }
    this.copied = name;
    setTimeout(() => (this.copied = ""), 2000);
  }

  block(/** @type {string} */ name, /** @type {string} */ text, /** @type {unknown} */ more = nothing) {
    return html`<div class="block">
      <h3>${name}</h3>
      <p class="tools"><button type="button" aria-label=${`Copy: ${name}`} @click=${() => this.copy(name, text)}>${this.copied === name ? "Copied" : "Copy"}</button>${more}</p>
      <pre tabindex="0" role="region" aria-label=${name}><code>${text}</code></pre>
    </div>`;
  }

  render() {
    if (!this.answer) return nothing;
    const { command, python, link } = this.a.take_away;
    const address = new URL(link.startsWith("#") ? link : `#${link}`, document.baseURI).href;
    return html`
      ${this.block("Command", command)} ${this.block("Python", python)} ${this.block("Link", address)}
      <div class="block"><h3>Engines' own commands</h3>${this.fold("engines", "The same deployment as each engine is started", () => this.engineLines())}</div>
      <div class="block">
        <h3>JSON</h3>
        <p class="tools">
          <button type="button" aria-label="Copy: JSON" @click=${() => this.copy("JSON", this.json)}>${this.copied === "JSON" ? "Copied" : "Copy"}</button>
          <button type="button" @click=${() => download(new Blob([this.json], { type: "application/json" }), "kvroom-plan.json")}>Save the file</button>
        </p>
        ${this.fold("json", "The whole answer", () => html`<pre tabindex="0" role="region" aria-label="JSON"><code>${this.json}</code></pre>`)}
      </div>
      ${this.a.warnings.length ? html`<div class="block"><h3>Said with a warning</h3><ul>${this.a.warnings.map((w) => html`<li>${w}</li>`)}</ul></div>` : nothing}
      <div class="block">
        <h3>What this rests on</h3>
        <div class="table" tabindex="0" role="region" aria-label="What this rests on"><table>
          <thead><tr>${["taken", "as", "from"].map((h) => html`<th scope="col">${h}</th>`)}</tr></thead>
          <tbody>${this.a.take_away.assumptions.map((x) => html`<tr><th scope="row">${x.what}</th><td>${x.taken}</td><td>${x.source}</td></tr>`)}</tbody>
        </table></div>
      </div>
      <div class="block">
        <h3>Every figure and where it comes from</h3>
        ${this.fold("sources", `${this.a.explanations.length} figures with formula, numbers and source`, () => this.sources())}
      </div>`;
  }

  engineLines() {
    const { lines, error } = this.engines;
    return error ? html`<p class="err">${error}</p>` : Object.entries(lines).map(([name, text]) => this.block(name, text));
  }

  sources() {
    return html`<div class="table" tabindex="0" role="region" aria-label="Every figure and where it comes from">
      <table>
        <thead><tr>${["figure", "value", "formula", "with numbers", "source"].map((h) => html`<th scope="col">${h}</th>`)}</tr></thead>
        <tbody>${this.a.explanations.map((e) => html`<tr><th scope="row">${e.label}</th><td>${e.value.toLocaleString("en-US", { maximumFractionDigits: 3 })} ${e.unit}</td><td>${e.formula}</td><td>${e.numbers}</td><td>${e.source}</td></tr>`)}</tbody>
      </table>
    </div>`;
  }
}

customElements.define("kv-take", TakeAway);
