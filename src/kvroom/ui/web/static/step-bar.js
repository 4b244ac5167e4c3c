import { html, nothing, svg } from "./vendor/lit.js";
import { line, scaleLinear, scaleLog } from "./vendor/d3.js";
import { WideFigure, number } from "./figure.js";
import { formats, grouped, memory, memoryTicks } from "./text.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").CurvePoint} CurvePoint */

const PLOT = { height: 290, left: 74, right: 18, top: 40, bottom: 40 };

/** What one decode step reads: weights once, every request's cache; and what that makes a token cost. */
export class StepBar extends WideFigure {
  static properties = { ...WideFigure.properties, shows: { type: String } };

  constructor() {
    super();
    /** `bar` is the step alone, `curve` its curve over batches; both where nothing is said. */
    this.shows = "";
  }

  get a() {
    return /** @type {Answer} */ (this.answer);
  }

  get data() {
    return this.a.figures.step;
  }

  sentence() {
    const { step } = this.a;
    return `A step for ${grouped(step.batch)} request${step.batch === 1 ? "" : "s"} reads ${memory(step.bytes.weights)} of weights and ${memory(this.data.cache_bytes)} of cache: ${memory(this.data.bytes_per_output_token)} for each token written.`;
  }

  picture() {
    const { step, cost } = this.a;
    const { batch } = step;
    const less = batch > 1 ? html`, ${number(this.a, "figures.step.times_cheaper", "times")} times less than alone` : nothing;
    const seconds = step.seconds == null ? nothing : html`; the step takes about ${number(this.a, "step.seconds", "seconds")}${this.band()}`;
    const price = cost.usd_per_million_output_tokens == null ? nothing : html`; ${number(this.a, "cost.usd_per_million_output_tokens", "usd")} a million tokens`;
    if (this.shows === "curve") return this.plot();
    return html`${this.bar()}
      <p class="big">${number(this.a, "figures.step.bytes_per_output_token", "memory")} <span class="soft">read for each token written${less}${seconds}${price}</span></p>
      ${this.load()} ${this.shows === "bar" ? nothing : this.plot()}`;
  }

  /** Between what the step's time is likely to lie. */
  band() {
    const { seconds_low: low, seconds_high: high } = this.a.step;
    return likely(low, high);
  }

  /** Times under the load, where lengths are asked for. */
  load() {
    const s = this.a.serving;
    if (s.tpot_s == null) return nothing;
    const first = s.ttft_s == null ? "never comes: more arrives than can be served" : html`comes after ${number(this.a, "serving.ttft_s", "seconds")}${likely(s.ttft_low_s, s.ttft_high_s)}`;
    return html`<p class="sum">Under the load asked for, a first token ${first}, and each further one after ${number(this.a, "serving.tpot_s", "seconds")}${likely(s.tpot_low_s, s.tpot_high_s)}.</p>`;
  }

  /** The step of one request alone above the step of the batch, on one scale. */
  bar() {
    const { step } = this.a;
    const { weights } = step.bytes;
    const cache = this.data.cache_bytes;
    const [one] = this.data.curve;
    const alone = one.weight_bytes + one.cache_bytes;
    const x = scaleLinear([0, Math.max(weights * 2.2, (weights + cache) * 1.02, alone * 1.02)], [0, 100]);
    const even = x(weights * 2);
    const many = step.batch > 1;
    const each = this.data;
    const slim = this.width < 560;
    const [thin, thick] = slim ? [18, 34] : [28, 48];
    const row = many ? thin + 34 : 0;
    const share = row + thick + (slim ? 50 : 64);
    const plural = many ? "s" : "";
    return html`<svg class="stack" width="100%" height=${many ? share + thin + 20 : thick + 48} role="img" aria-label=${this.sentence()}>
      <text class="soft" x="0" y=${row + 12}>${grouped(step.batch)} request${plural}: ${memory(weights + cache)} for ${many ? `${grouped(step.batch)} tokens` : "one token"}</text>
      ${this.blocks(weights, cache, x, row + 19, thick)}
      <line class="mark" x1=${`${even}%`} x2=${`${even}%`} y1=${row + 12} y2=${row + thick + 24}/>
      <text class="soft" x=${`${even}%`} y=${row + thick + 38} text-anchor=${even > 70 ? "end" : "middle"}>${each.overtaken ? "cache has overtaken weights" : "cache overtakes weights here"}</text>
      ${many
        ? svg`<text class="soft" x="0" y="12">one request alone: ${memory(alone)} for one token</text>${this.blocks(one.weight_bytes, one.cache_bytes, x, 19, thin)}
          <text class="soft" x="0" y=${share + 12}>for each token <tspan class="strong">${memory(each.bytes_per_output_token)}</tspan>${slim ? "" : ", in the outline of one alone"}</text>
          <rect class="ghost" x="0" y=${share + 19} width=${`${x(alone)}%`} height=${thin}/>
          <rect class="weights" x="0" y=${share + 19} width=${`${x(each.weight_bytes_per_output_token)}%`} height=${thin}/>
          <rect class="cache" x=${`${x(each.weight_bytes_per_output_token)}%`} y=${share + 19} width=${`${x(each.cache_bytes_per_output_token)}%`} height=${thin}/>`
        : nothing}
    </svg>`;
  }

  /** @param {number} weights @param {number} cache @param {(bytes: number) => number} x @param {number} y @param {number} height */
  blocks(weights, cache, x, y, height) {
    const wide = (/** @type {number} */ size) => (x(size) / 100) * this.width > 150;
    const base = y + height / 2 + 5;
    return svg`<rect class="weights" x="0" y=${y} width=${`${x(weights)}%`} height=${height}/>
      <rect class="cache" x=${`${x(weights)}%`} y=${y} width=${`${x(cache)}%`} height=${height}/>
      <text class=${wide(weights) ? "on-weights strong" : "hidden"} x="14" y=${base}>weights ${memory(weights)}</text>
      ${wide(cache)
        ? svg`<text class="on-cache strong" x=${`${x(weights)}%`} dx="12" y=${base}>cache ${memory(cache)}</text>`
        : svg`<text class="strong halo" x=${`${x(weights + cache)}%`} dx="8" y=${base}>cache ${memory(cache)}</text>`}`;
  }

  plot() {
    const { curve, compute_batch: compute } = this.data;
    const { step } = this.a;
    const last = curve[curve.length - 1];
    const label = curve.find((p) => p.batch === (this.width < 560 ? 128 : 64)) ?? last;
    const here = { batch: step.batch, y: this.data.bytes_per_output_token };
    const narrow = this.width < 560;
    const left = narrow ? 62 : PLOT.left;
    const most = Math.max(curve[curve.length - 1].batch, step.batch);
    const x = scaleLog([1, most], [left, this.width - PLOT.right]);
    const values = curve.flatMap((p) => [p.bytes_per_output_token, p.weight_bytes_per_output_token]);
    const least = Math.min(...values.filter((v) => v > 0), here.y);
    const y = scaleLog([least / 1.3, Math.max(...values) * 1.5], [PLOT.height - PLOT.bottom, PLOT.top]);
    const path = (/** @type {(p: CurvePoint) => number} */ of) =>
      line(/** @type {(p: CurvePoint) => number} */ ((p) => x(p.batch)), (p) => y(of(p)))(curve.filter((p) => of(p) >= y.domain()[0])) ?? "";
    const ticks = (narrow ? [1, 8, 64, 1024] : [1, 4, 16, 64, 256, 1024]).filter((b) => b <= most);
    const mark = (/** @type {number | null} */ batch, /** @type {string} */ name, /** @type {number} */ row) =>
      batch == null || batch < 1 || batch > most
        ? nothing
        : svg`<line class="mark" x1=${x(batch)} x2=${x(batch)} y1=${PLOT.top - 12} y2=${PLOT.height - PLOT.bottom}/>
          <text class="soft halo" x=${x(batch)} dx=${x(batch) > this.width * 0.6 ? -6 : 6} y=${PLOT.top - 4 + row * 17} text-anchor=${x(batch) > this.width * 0.6 ? "end" : "start"}>${narrow ? "" : `${name} `}${grouped(batch)}</text>`;
    return html`<svg class="plot" width="100%" height=${PLOT.height} role="img" aria-label=${`Bytes for each token over batch sizes 1 to ${grouped(most)}, log scale on both axes.`}>
      ${memoryTicks(y.domain()).map((v) => svg`<line class="grid" x1=${left} x2=${this.width - PLOT.right} y1=${y(v)} y2=${y(v)}/><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${memory(v)}</text>`)}
      ${ticks.map((b) => svg`<text class="soft" x=${x(b)} y=${PLOT.height - 20} text-anchor=${b === most ? "end" : "middle"}>${grouped(b)}</text>`)}
      <text class="soft" x=${this.width - PLOT.right} y=${PLOT.height - 3} text-anchor="end">requests in the batch, log scale</text>
      <text class="soft" x="0" y="11">bytes for each token, log scale</text>
      <path class="line-weights" d=${path((p) => p.weight_bytes_per_output_token)}/>
      <path class="line-cache" d=${path((p) => p.cache_bytes_per_output_token)}/>
      <path class="line-total" d=${path((p) => p.bytes_per_output_token)}/>
      <text class="soft" x=${x(label.batch)} y=${y(Math.max(label.weight_bytes_per_output_token, least))} dx="-8" dy="14" text-anchor="end">weights</text>
      ${last.cache_bytes_per_output_token > least ? svg`<text class="cache-ink halo" x=${left + 6} y=${y(last.cache_bytes_per_output_token) - 7}>cache</text>` : nothing}
      <text class="strong halo" x=${left + 6} y=${y(curve[0].bytes_per_output_token) - 8}>both</text>
      ${mark(step.crossover_batch, "cache overtakes weights at", 0)}
      ${mark(compute, "arithmetic overtakes memory at", 1)}
      <circle class="here" cx=${x(here.batch)} cy=${y(Math.max(here.y, least))} r="6"/>
    </svg>`;
  }

  key() {
    const { step } = this.a;
    return html`<ul class="key">
      <li><i class="chip weights"></i><span>Weights ${number(this.a, "step.bytes.weights", "memory")}, read once</span></li>
      <li><i class="chip cache"></i><span>Cache ${number(this.a, "figures.step.cache_bytes", "memory")} of ${number(this.a, "step.batch", "count")} request${step.batch === 1 ? "" : "s"}</span></li>
      <li><span>Cache overtakes weights at ${number(this.a, "step.crossover_batch", "count")}</span></li>
      ${this.data.compute_batch == null ? nothing : html`<li><span>Arithmetic overtakes memory at ${number(this.a, "figures.step.compute_batch", "count")}</span></li>`}
    </ul>`;
  }

  caption() {
    if (this.shows === "bar") return "All bars from zero, on one scale. Grey: weights, read once a step, however many share it. Green: the KV cache of every request.";
    const { compute_batch: compute, compute_known: known, curve } = this.data;
    const most = curve[curve.length - 1].batch;
    let why = "";
    if (!known) why = " How fast this card computes is not stated; choose another to see where arithmetic overtakes memory.";
    else if (compute == null) why = " Arithmetic never becomes the limit at this length: each request brings more bytes than work.";
    else if (compute > most) why = ` Arithmetic becomes the limit from ${grouped(compute)} requests on.`;
    return `Bytes read for each token written, over the batch; log scale on both axes. The dot is the batch chosen.${why}`;
  }

  table() {
    return {
      head: ["requests in the batch", "bytes of weights", "bytes of cache and state", "bytes for each token written"],
      rows: this.data.curve.map((p) => [p.batch, p.weight_bytes, p.cache_bytes, p.bytes_per_output_token]),
    };
  }
}

/** @param {number | null} low @param {number | null} high */
const likely = (low, high) => (low == null || high == null ? nothing : ` (likely ${formats.seconds(low)} to ${formats.seconds(high)})`);

customElements.define("kv-step", StepBar);
