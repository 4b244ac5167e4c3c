import { html, nothing, svg } from "./vendor/lit.js";
import { line, scaleLog } from "./vendor/d3.js";
import { WideFigure } from "./figure.js";
import { grouped, seconds } from "./text.js";

/** @typedef {import("./types").CliffPoint} Point */

const PLOT = { height: 270, left: 66, right: 22, top: 34, bottom: 46 };

/**
 * p99 of the wait for the first token over the size of the pool. `answer` is the cliff's; `here` are the
 * sizes being played. Says `choose` with the size that was pointed at.
 */
export class Cliff extends WideFigure {
  static properties = { ...WideFigure.properties, here: { attribute: false } };

  constructor() {
    super();
    /** @type {number[]} */
    this.here = [];
  }

  /** @returns {Point[]} */
  get points() {
    return /** @type {any} */ (this.answer).points;
  }

  /** @returns {number | null} */
  get breaks_at() {
    return /** @type {any} */ (this.answer).breaks_at ?? null;
  }

  /** @param {number} value */
  p99(value) {
    return this.points.find((p) => p.value === value)?.ttft_p99_s ?? null;
  }

  sentence() {
    const broken = this.breaks_at == null ? "" : ` It breaks at ${grouped(this.breaks_at)} blocks.`;
    const here = this.here.map((value) => {
      const wait = this.p99(value);
      return wait == null ? "" : ` You are at ${grouped(value)} blocks: ${seconds(wait)}.`;
    });
    return `Ninety-nine of a hundred requests wait at most so long for their first token, over the blocks of the pool.${broken}${here.join("")}`;
  }

  picture() {
    const points = this.points.filter((p) => p.ttft_p99_s != null);
    if (!points.length) return html`<p class="soft">…</p>`;
    const narrow = this.width < 560;
    const left = narrow ? 56 : PLOT.left;
    const values = points.map((p) => p.value);
    const waits = points.map((p) => /** @type {number} */ (p.ttft_p99_s));
    const x = scaleLog([Math.min(...values), Math.max(...values)], [left + 8, this.width - PLOT.right]);
    const y = scaleLog([Math.min(...waits) / 1.4, Math.max(...waits) * 1.4], [PLOT.height - PLOT.bottom, PLOT.top]);
    const base = PLOT.height - PLOT.bottom;
    const path = line(/** @type {(p: Point) => number} */ ((p) => x(p.value)), (p) => y(/** @type {number} */ (p.ttft_p99_s)))(points) ?? "";
    const inside = (/** @type {number} */ v) => v >= y.domain()[0] && v <= y.domain()[1];
    const tens = Array.from({ length: 9 }, (_, i) => 10 ** (i - 4)).filter(inside);
    const powers = tens.length > 2 ? tens : [...tens, ...Array.from({ length: 9 }, (_, i) => 3 * 10 ** (i - 4)).filter(inside)];
    const broken = this.breaks_at;
    const choose = (/** @type {number} */ value) => this.dispatchEvent(new CustomEvent("choose", { bubbles: true, detail: value }));
    return html`<svg class="plot" width="100%" height=${PLOT.height} role="img" aria-label=${this.sentence()}>
      ${powers.map((v) => svg`<line class="grid" x1=${left} x2=${this.width - PLOT.right} y1=${y(v)} y2=${y(v)}/><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${seconds(v)}</text>`)}
      ${values.map((v, i) => (narrow && i % 2 ? nothing : svg`<text class="soft" x=${x(v)} y=${base + 20} text-anchor="middle">${grouped(v)}</text>`))}
      <text class="soft" x=${this.width - PLOT.right} y=${PLOT.height - 5} text-anchor="end">blocks in the pool, log scale</text>
      <text class="soft" x="0" y="11">TTFT, p99, log scale</text>
      ${broken == null ? nothing : svg`<rect class="beyond" x=${left} y=${PLOT.top - 8} width=${Math.max(0, x(broken) - left)} height=${base - PLOT.top + 8}/>
        <text class="strong halo" x=${x(broken)} dx=${x(broken) - left > 106 ? -4 : 8} y=${base - 8} text-anchor=${x(broken) - left > 106 ? "end" : "start"}>breaks at ${grouped(broken)}</text>`}
      <path class="line-total" d=${path}/>
      ${points.map((p) => svg`<circle class="point" cx=${x(p.value)} cy=${y(/** @type {number} */ (p.ttft_p99_s))} r="4"/><circle class="target" cx=${x(p.value)} cy=${y(/** @type {number} */ (p.ttft_p99_s))} r="14" @click=${() => choose(p.value)}><title>${grouped(p.value)} blocks: ${seconds(/** @type {number} */ (p.ttft_p99_s))}</title></circle>`)}
      ${this.here.map((value, i) => {
        const wait = this.p99(value);
        if (wait == null) return nothing;
        const right = x(value) > this.width * 0.55;
        return svg`<circle class="here" cx=${x(value)} cy=${y(wait)} r="7"/><text class="strong halo" x=${x(value)} dx=${right ? -13 : 13} y=${y(wait) - 9 + i * 18} text-anchor=${right ? "end" : "start"}>${i ? "beside" : "you are here"}: ${seconds(wait)}</text>`;
      })}
    </svg>`;
  }

  caption() {
    return "The same requests on larger and smaller pools, log scale on both axes. Far from the edge more memory changes nothing; at the edge a little less changes everything.";
  }

  table() {
    return {
      head: ["blocks", "TTFT p50, s", "TTFT p99, s", "TPOT p99, s", "tokens a second", "preemptions", "found in cache"],
      rows: this.points.map((p) => [p.value, p.ttft_p50_s ?? "", p.ttft_p99_s ?? "", p.tpot_p99_s ?? "", p.output_tokens_per_s, p.preemptions, p.prefix_hit_ratio]),
    };
  }
}

customElements.define("kv-cliff", Cliff);
