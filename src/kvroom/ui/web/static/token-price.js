import { html, nothing, svg } from "./vendor/lit.js";
import { scaleLinear } from "./vendor/d3.js";
import "./drag.js";
import { Figure, WideFigure, number } from "./figure.js";
import { memory, grouped, modelName, tokens } from "./text.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Kind} Kind */

/** Layer kinds as the page says them. @type {Record<string, string>} */
const KINDS = {
  full: "full attention",
  window: "sliding window",
  chunked: "chunked attention",
  latent: "latent attention",
  indexer: "indexer keys",
  compressed: "compressed keys",
  state: "recurrent state",
  conv: "convolution",
  cross: "cross attention",
  shared: "shared cache",
};

/** The kind that a layer is coloured by: the one that holds most. @param {Kind[]} kinds @param {number[]} indices */
function main(kinds, indices) {
  return indices.map((i) => kinds[i]).sort((a, b) => b.bytes_per_request / b.layers - a.bytes_per_request / a.layers)[0];
}

/** The factors of one token's price, and the layers that pay it. */
export class TokenPrice extends Figure {
  get data() {
    return /** @type {Answer} */ (this.answer).figures.price;
  }

  sentence() {
    const a = /** @type {Answer} */ (this.answer);
    const kinds = this.data.kinds.map((k) => `${k.layers} layers of ${KINDS[k.kind] ?? k.kind}`).join(", ");
    return `${modelName(a.scenario)}: ${kinds}. One more token adds ${memory(a.kv.bytes_per_token)}, a whole request holds ${memory(a.kv.bytes_per_request)}.`;
  }

  picture() {
    const a = /** @type {Answer} */ (this.answer);
    const { kinds, runs } = this.data;
    const layers = runs.reduce((n, run) => n + run.layers, 0);
    const x = scaleLinear([0, layers], [0, 100]);
    let at = 0;
    return html`
      <ul class="factors">${kinds.filter((k) => k.factors.length).map((k, i) => this.product(k, i))}</ul>
      <p class="sum">${this.sum()}</p>
      <svg class="tiles" width="100%" height="58" role="img" aria-label=${this.sentence()}>
        ${runs.flatMap((run) => {
          const kind = run.kinds.length ? main(kinds, run.kinds) : null;
          return Array.from({ length: run.layers }, () => {
            const layer = at++;
            return svg`<rect class=${`tile kind-${kind?.kind ?? "none"}`} x=${`${x(layer)}%`} y="2" width=${`${x(1)}%`} height="38"><title>${`layer ${layer + 1}: ${run.kinds.map((i) => `${KINDS[kinds[i].kind] ?? kinds[i].kind}, ${memory(kinds[i].bytes_per_layer)} an entry`).join("; ") || "keeps nothing"}`}</title></rect>`;
          });
        })}
        <text class="soft" x="0" y="56">layer 1</text>
        <text class="soft" x="100%" y="56" text-anchor="end">layer ${layers}</text>
      </svg>`;
  }

  /** What the products come to: said once where there is only one. */
  sum() {
    const a = /** @type {Answer} */ (this.answer);
    if (!this.data.kinds.length) return "This model's layers keep nothing from token to token.";
    const token = this.data.kinds.length > 1 ? html`One more token adds ${number(a, "kv.bytes_per_token", "memory")}; a` : "A";
    const { read_s: read } = this.data;
    const usd = a.cost.usd_per_user_hour;
    const time = read == null ? nothing : html` Reading it takes ${number(a, "figures.price.read_s", "seconds")} of every step${usd == null ? nothing : html`, and its place costs ${number(a, "cost.usd_per_user_hour", "usd")} an hour`}.`;
    return html`${token} request of ${number(a, "scenario.context_tokens", "tokens")} holds ${number(a, "kv.bytes_per_request", "memory")}.${time}`;
  }

  /** @param {Kind} kind @param {number} i */
  product(kind, i) {
    const a = /** @type {Answer} */ (this.answer);
    const path = `figures.price.kinds.${i}`;
    const grows = kind.bytes_per_token > 0;
    const factor = (/** @type {unknown} */ value, /** @type {string} */ name) => html`<span class="factor"><b>${value}</b><small>${name}</small></span>`;
    const layers = kind.layers === 1 ? "layer" : "layers";
    const held = grows ? (kind.entry_bytes === kind.bytes_per_token ? "a token" : "an entry") : kind.window_tokens ? "a token held" : kind.kind === "cross" ? "a token heard" : "a request";
    return html`<li>
      <span class="product">
        ${factor(this.turnable("layers", kind.layers) ?? number(a, `${path}.layers`, "count"), layers)}
        ${kind.factors.map((f, j) => html`<i>×</i>${factor(this.turnable(f.name, f.value) ?? number(a, `${path}.factors.${j}.value`, "count"), f.name)}`)}
        <i>×</i>${factor((["state", "conv"].includes(kind.kind) ? null : this.turnable("bits", kind.bits)) ?? number(a, `${path}.bits`, "count"), kind.scales ? "bits, scales beside" : "bits")} <i>=</i>
        ${factor(number(a, `${path}.entry_bytes`, "memory"), held)}
      </span>
      <span class="soft">${KINDS[kind.kind] ?? kind.kind}: ${kind.sentence}</span>
    </li>`;
  }

  /** A number that can be dragged, where the question can be asked with another. @param {string} name @param {number} value */
  turnable(name, value) {
    const { turns } = this.data;
    const steps = name === "bits" ? turns.bits.map((t) => t.value) : /** @type {any} */ (turns)[name]?.steps;
    return steps ? html`<kv-drag .data=${{ steps: [...steps].sort((x, y) => x - y), value, name }}></kv-drag>` : null;
  }

  key() {
    const kinds = [...new Set(this.data.kinds.map((k) => k.kind))];
    return html`<ul class="key">${kinds.map((k) => html`<li><svg class="chip" width="16" height="16" aria-hidden="true"><rect class=${`tile kind-${k}`} width="16" height="16"/></svg>${KINDS[k] ?? k}</li>`)}</ul>`;
  }

  caption() {
    return "One tile a layer, in order, coloured by what it keeps.";
  }

  table() {
    return {
      head: ["kind of layer", "layers", "bytes an entry, one layer", "bytes one more token adds", "bytes one request holds"],
      rows: this.data.kinds.map((k) => [KINDS[k.kind] ?? k.kind, k.layers, k.bytes_per_layer, k.bytes_per_token, k.bytes_per_request]),
    };
  }
}

/** Heights of a row: the name above the bar, or beside it. */
const ROW = 52;
const SLIM_ROW = 38;

/** Models side by side on one scale. */
export class Compare extends WideFigure {
  static properties = { ...WideFigure.properties, answers: { attribute: false }, whole: { state: true } };

  constructor() {
    super();
    /** @type {Answer[]} */
    this.answers = [];
    this.whole = false;
  }

  /** Where the bars start, in percent: beside the names where there is width for both. */
  get left() {
    return this.width > 720 ? 24 : 0;
  }

  /** @param {Answer} a */
  value(a) {
    return this.whole ? a.kv.bytes_per_request : a.kv.bytes_per_token;
  }

  get rows() {
    return [...this.answers].sort((a, b) => this.value(b) - this.value(a));
  }

  get what() {
    const context = this.answers[0]?.scenario.context_tokens ?? 0;
    return this.whole ? `one request of ${tokens(context)} tokens` : "one more token";
  }

  sentence() {
    return `What ${this.what} takes: ${this.rows.map((a) => `${modelName(a.scenario)} ${memory(this.value(a))}`).join(", ")}.`;
  }

  picture() {
    if (!this.answers.length) return html`<p class="soft">Asking…</p>`;
    const rows = this.rows;
    const x = scaleLinear([0, this.value(rows[0]) || 1], [0, Math.min(90, 100 - 8000 / this.width) - this.left]);
    const tall = this.left ? SLIM_ROW : ROW;
    return html`
      <fieldset class="seg"><legend>What ${this.whole ? "a whole request" : "one more token"} takes</legend>
        ${[false, true].map((whole) => html`<label><input type="radio" name="compare" .checked=${this.whole === whole} @change=${() => (this.whole = whole)}><span>${whole ? "one request" : "one token"}</span></label>`)}
      </fieldset>
      <svg width="100%" height=${rows.length * tall} role="img" aria-label=${this.sentence()}>
        ${rows.map((a, i) => this.row(a, i * tall, x))}
      </svg>`;
  }

  /** @param {Answer} a @param {number} y @param {(value: number) => number} x */
  row(a, y, x) {
    const { kinds, runs, attention } = a.figures.price;
    const { left } = this;
    let at = left;
    const chosen = modelName(a.scenario) === modelName(/** @type {Answer} */ (this.answer).scenario);
    const size = (/** @type {Kind} */ k) => x((this.whole ? k.bytes_per_request : k.bytes_per_token) / k.layers);
    const used = kinds.filter((k) => size(k));
    // Tiles too narrow to tell apart are drawn as one a kind.
    const merged = used.some((k) => (size(k) * this.width) / 100 < 4);
    const pieces = merged
      ? used.map((k) => ({ kind: k.kind, wide: size(k) * k.layers }))
      : runs.flatMap((run) => Array.from({ length: run.layers }, () => run.kinds.map((i) => ({ kind: kinds[i].kind, wide: size(kinds[i]) }))).flat());
    const top = left ? 6 : 20;
    const tiles = pieces.filter((p) => p.wide).map(({ kind, wide }) => {
      const start = at;
      at += wide;
      return svg`<rect class=${`tile kind-${kind} ${merged ? "thin" : ""}`} x=${`${start}%`} y=${y + top} width=${`${wide}%`} height=${left ? 24 : 20}/>`;
    });
    return svg`<g>
      <text x="0" y=${y + (left ? 23 : 14)} class=${chosen ? "strong" : ""}>${modelName(a.scenario)}<tspan class="soft" dx="8">${attention}</tspan></text>
      ${tiles}
      <text x=${`${left + x(this.value(a))}%`} dx="8" y=${y + (left ? 23 : 35)} class="strong">${memory(this.value(a))}</text>
    </g>`;
  }

  caption() {
    return "One scale for all; each bar is made of its layers. Same cache width and length for every model.";
  }

  table() {
    return {
      head: ["model", "attention", "bytes one more token adds", "bytes one request holds", "layers"],
      rows: this.rows.map((a) => [modelName(a.scenario), a.figures.price.attention, a.kv.bytes_per_token, a.kv.bytes_per_request, grouped(a.figures.price.runs.reduce((n, r) => n + r.layers, 0))]),
    };
  }
}

customElements.define("kv-price", TokenPrice);
customElements.define("kv-compare", Compare);
