/** The answer card, and the memory of one GPU account by account. */
import { LitElement, html, nothing, svg } from "./vendor/lit.js";
import { scaleLinear } from "./vendor/d3.js";
import { WideFigure, number } from "./figure.js";
import { capital, formats } from "./text.js";

/** @typedef {import("./types").Answer} Answer */

const ROOM = ["ceiling", "engine", "expected", "shared"];
/** Plain meaning of the words that rows begin with. @type {Record<string, string>} */
const MEANING = {
  ceiling: "all memory but the weights, over one request of the longest length",
  engine: "what the engine would print as its maximum concurrency, for requests of the longest length",
  expected: "requests at once when they are as long as you say, not as long as they may be",
  shared: "the same, with a prefix that all requests begin with held once",
  ttft: "from a request's arrival to its first token, as a client sees it",
  tpot: "from one token of an answer to the next",
  user: "what one user sees of an answer in a second",
  total: "what all users get together in a second",
  usd: "the cards' hours over the tokens written",
};

/** The figures that decide, each with its band; reasons and warnings with what mends them. */
export class AnswerCard extends LitElement {
  static properties = { answer: { attribute: false }, copied: { state: true } };

  constructor() {
    super();
    /** @type {Answer | null} */
    this.answer = null;
    this.copied = "";
    this.link = () => "";
    /** What stood in it before any script ran. @type {ChildNode[] | null} */
    this.first = null;
  }

  createRenderRoot() {
    return this;
  }

  connectedCallback() {
    this.first ??= [...this.childNodes];
    super.connectedCallback();
  }

  willUpdate() {
    if (this.answer && this.first?.length) {
      for (const node of this.first) node.remove();
      this.first = [];
    }
  }

  async copy() {
    const text = this.link();
    try {
      await navigator.clipboard.writeText(text);
      this.copied = "Link copied";
    } catch {
      this.copied = text; // no clipboard here: it stands to be selected
    }
    this.dispatchEvent(new CustomEvent("say", { detail: this.copied }));
    await this.updateComplete;
    if (this.copied === text) /** @type {HTMLInputElement | null} */ (this.querySelector("#link-text"))?.select();
    else setTimeout(() => (this.copied = ""), 3000);
  }

  /** @param {any} row @param {number} at */
  row(row, at) {
    const answer = /** @type {Answer} */ (this.answer);
    const figure = row.figure || `figures.card.rows.${at}.value`;
    const form = formats[row.form];
    return html`<tr>
      <th scope="row"><span title=${MEANING[row.key] ?? ""}>${row.label}</span>${row.says ? html`<small>${row.says}</small>` : nothing}</th>
      ${row.value == null ? html`<td class="value" colspan="2"><span class="soft">${row.needs}</span></td>` : html`<td class="value">${number(answer, figure, row.form)}</td>
      <td class="band">${row.low == null ? nothing : html`<span class="hidden">80 % band </span>${form(row.low)}–${form(row.high)}`}</td>`}
    </tr>`;
  }

  /** @param {{message: string, fix: string, key: string}} item */
  item({ message, fix, key }) {
    const go = () => this.dispatchEvent(new CustomEvent("field", { detail: key }));
    return html`<li>${capital(message)}.${fix ? html` ${key ? html`<button type="button" @click=${go}>${fix}</button>` : fix.startsWith("kvroom levers") ? html`<a href="#levers">${capital(fix.replace("kvroom levers ranks ", ""))}</a>` : html`<b>${fix}</b>`}` : nothing}</li>`;
  }

  /** @param {string} name @param {any[]} rows @param {(row: any) => boolean} of */
  table(name, rows, of) {
    return html`<table>
      <caption>${name}</caption>
      <colgroup><col><col class="wide"><col class="wide"></colgroup>
      <thead class="hidden"><tr><th scope="col">figure</th><th scope="col">value</th><th scope="col">80 % band</th></tr></thead>
      <tbody>${rows.map((row, at) => (of(row) ? this.row(row, at) : nothing))}</tbody>
    </table>`;
  }

  render() {
    if (!this.answer) return nothing;
    const { card } = /** @type {any} */ (this.answer.figures);
    const each = card.replicas > 1 ? ` on each of ${card.replicas} replicas` : "";
    return html`<div class="answer" data-colour=${card.colour} role="group" aria-label="The answer">
      ${this.table(`Requests at once, whole deployment${each}`, card.rows, (row) => ROOM.includes(row.key))}
      ${this.table("Times, tokens and money", card.rows, (row) => !ROOM.includes(row.key))}
      <p class="soft bands">Ranges are 80 % bands: four of five such deployments lie inside.</p>
      ${card.reasons.length ? html`<p class="sub" id="card-why">Why</p><ul class="reasons" aria-labelledby="card-why">${card.reasons.map((/** @type {any} */ reason) => this.item(reason))}</ul>` : nothing}
      ${card.warnings.length ? html`<p class="sub" id="card-know">To know</p><ul class="warnings" aria-labelledby="card-know">${card.warnings.map((/** @type {any} */ warning) => this.item(warning))}</ul>` : nothing}
      <p class="row links">
        <button type="button" class="go" id="copy-link" @click=${() => this.copy()}>Copy the link</button>
        ${this.copied.startsWith("http") ? html`<input id="link-text" readonly aria-label="The link" .value=${this.copied}>` : html`<span class="soft">${this.copied}</span>`}
      </p>
    </div>`;
  }
}

/** Names of the accounts. @type {Record<string, string>} */
const ACCOUNTS = { weights: "Weights", adapters: "Adapters", draft: "Draft model", activations: "Activations", runtime: "Runtime", graphs: "CUDA graphs", encoder: "Image encoder", kv: "KV cache", unused: "Unused" };
const LOOKS = { weights: "weights", kv: "cache", unused: "kept" };
const BAR = 46;
const LINE = 30;

/** The memory of one GPU: a bar of its accounts, and each with its band below. */
export class Accounts extends WideFigure {
  get memory() {
    return /** @type {Answer} */ (this.answer).memory;
  }

  get parts() {
    return this.memory.accounts.filter((account) => account.bytes || account.high_bytes);
  }

  sentence() {
    const size = formats.memory;
    return `One GPU of ${size(this.memory.gpu_bytes)}: ${this.parts.map((account) => `${ACCOUNTS[account.name] ?? account.name} ${size(account.bytes)}`).join(", ")}.`;
  }

  picture() {
    const { gpu_bytes: whole } = this.memory;
    const over = this.parts.reduce((sum, account) => sum + Math.max(0, account.bytes), 0);
    const left = Math.min(150, this.width * 0.34);
    const right = this.width - Math.min(190, this.width * 0.36);
    const most = Math.max(whole, over);
    const bar = scaleLinear([0, most], [0, this.width]);
    const lines = scaleLinear([0, Math.max(whole, ...this.parts.map((account) => account.high_bytes))], [left, right]);
    let at = 0;
    const { memory: size } = formats;
    return html`<svg width="100%" height=${BAR + 16 + this.parts.length * LINE} viewBox=${`0 0 ${this.width} ${BAR + 16 + this.parts.length * LINE}`} role="img" aria-label=${this.sentence()}>
      ${this.parts.filter((account) => account.bytes > 0).map((account) => {
        const from = at;
        at += account.bytes;
        return svg`<rect class=${LOOKS[/** @type {keyof LOOKS} */ (account.name)] ?? "own"} x=${bar(from)} y="0" width=${Math.max(1, bar(account.bytes) - 1)} height=${BAR}><title>${ACCOUNTS[account.name] ?? account.name}: ${size(account.bytes)}</title></rect>`;
      })}
      ${over > whole ? svg`<line class="wall" x1=${bar(whole)} x2=${bar(whole)} y1="-4" y2=${BAR + 4}/>` : nothing}
      ${this.parts.map((account, i) => {
        const y = BAR + 16 + i * LINE;
        const middle = y + LINE / 2 - 3;
        const banded = account.low_bytes < account.high_bytes;
        const low = lines(Math.max(0, account.low_bytes));
        const high = lines(account.high_bytes);
        return svg`<text x="0" y=${y + 17}>${ACCOUNTS[account.name] ?? account.name}</text>
          <rect class=${LOOKS[/** @type {keyof LOOKS} */ (account.name)] ?? "own"} x=${left} y=${y + 4} width=${Math.max(1, lines(Math.max(0, account.bytes)) - left)} height=${LINE - 14}></rect>
          ${banded ? svg`<path class="band" d=${`M${low} ${middle - 5}V${middle + 5}M${low} ${middle}H${high}M${high} ${middle - 5}V${middle + 5}`}/>` : nothing}
          <text class="soft" x=${this.width} y=${y + 17} text-anchor="end">${size(account.bytes)}</text>`;
      })}
    </svg>`;
  }

  caption() {
    const { memory: size } = formats;
    const banded = this.parts.filter((account) => account.low_bytes < account.high_bytes);
    return html`The first bar is the whole GPU, ${size(this.memory.gpu_bytes)} as the engine sees it; below it each account by itself${banded.length ? ", a line over what is estimated for its 80 % band" : ""}. All bars start at zero.`;
  }

  table() {
    return {
      head: ["account", "bytes", "from", "to", "source"],
      rows: this.parts.map((account) => [ACCOUNTS[account.name] ?? account.name, account.bytes, account.low_bytes, account.high_bytes, account.source]),
    };
  }
}

customElements.define("kv-card", AnswerCard);
customElements.define("kv-accounts", Accounts);
