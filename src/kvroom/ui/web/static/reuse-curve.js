import { html, svg } from "./vendor/lit.js";
import { line, scaleLinear, scaleLog } from "./vendor/d3.js";
import { WideFigure } from "./figure.js";
import { formats, grouped } from "./text.js";

const PLOT = { height: 220, left: 54, right: 22, top: 30, bottom: 46 };

/** How much of the prompts a cache of each size could find again. `answer` is that of `kvroom reuse --json`. */
export class ReuseCurve extends WideFigure {
  static properties = { ...WideFigure.properties, here: { attribute: false } };

  constructor() {
    super();
    this.here = 0;
  }

  get r() {
    return /** @type {import("./types").ReuseAnswer} */ (/** @type {any} */ (this.answer));
  }

  sentence() {
    const { r } = this;
    if (!r.hit_blocks) return `None of the ${grouped(r.references)} blocks asked for had been seen before: there is nothing to find again.`;
    const need = r.needs[r.needs.length - 1];
    return `With room without end ${formats.percent(r.token_hit_ratio)} of all prompt tokens would be found again; a cache of ${grouped(need.blocks)} blocks finds ${formats.percent(need.hit_ratio)} of the blocks.`;
  }

  picture() {
    const { curve } = this.r;
    const most = Math.max(...curve.map((p) => p.hit_ratio));
    if (!(most > 0)) return html`<p class="sum">${this.sentence()}</p>`;
    const last = curve[curve.length - 1].blocks;
    const x = scaleLog([1, Math.max(2, last, this.here)], [PLOT.left, this.width - PLOT.right]);
    const y = scaleLinear([0, most * 1.05], [PLOT.height - PLOT.bottom, PLOT.top]);
    const path = line(/** @type {(p: {blocks: number, hit_ratio: number}) => number} */ ((p) => x(p.blocks)), (p) => y(p.hit_ratio))([...curve, { ...curve[curve.length - 1], blocks: x.domain()[1] }]) ?? "";
    const ticks = Array.from({ length: 12 }, (_, i) => 4 ** i).filter((v) => v <= x.domain()[1]);
    const shown = this.width < 560 ? ticks.filter((_, i) => i % 2 === 0) : ticks;
    const right = x(Math.max(1, this.here)) > this.width * 0.6;
    return html`<svg class="plot" width="100%" height=${PLOT.height} role="img" aria-label=${this.sentence()}>
      ${y.ticks(4).map((v) => svg`<line class="grid" x1=${PLOT.left} x2=${this.width - PLOT.right} y1=${y(v)} y2=${y(v)}/><text class="soft" x=${PLOT.left - 8} y=${y(v) + 4} text-anchor="end">${formats.percent(v)}</text>`)}
      ${shown.map((v) => svg`<text class="soft" x=${x(v)} y=${PLOT.height - PLOT.bottom + 20} text-anchor="middle">${grouped(v)}</text>`)}
      <text class="soft" x=${this.width - PLOT.right} y=${PLOT.height - 5} text-anchor="end">blocks in the cache, log scale</text>
      <text class="soft" x="0" y="11">prefix-cache hit rate</text>
      <path class="line-shared" d=${path}/>
      ${this.here ? svg`<line class="mark" x1=${x(this.here)} x2=${x(this.here)} y1=${PLOT.top - 8} y2=${PLOT.height - PLOT.bottom}/><text class="soft halo" x=${x(this.here)} dx=${right ? -6 : 6} y=${PLOT.top + 2} text-anchor=${right ? "end" : "start"}>this pool</text>` : ""}
    </svg>`;
  }

  caption() {
    return `${this.sentence()} Prompts only, one after the other, the longest unused thrown out first: a bound for prefix caching, before anybody runs.`;
  }

  table() {
    return { head: ["blocks", "share of blocks found again"], rows: this.r.curve.map((p) => [p.blocks, p.hit_ratio]) };
  }
}

customElements.define("kv-reuse", ReuseCurve);
