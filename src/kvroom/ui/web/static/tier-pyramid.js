import { html, nothing, svg } from "./vendor/lit.js";
import { line, scaleLog } from "./vendor/d3.js";
import { WideFigure, number } from "./figure.js";
import { formats, memory, grouped, seconds, tokens } from "./text.js";

/** @typedef {import("./section-types").TierPoint} Point */

const PLOT = { height: 300, top: 30, bottom: 42 };
const ROW = 54;
const NECK = 38;
const SLIM = { row: 66, neck: 44 };

/** The machine's tiers, and what it takes to bring cache back from below or to compute it anew. */
export class TierPyramid extends WideFigure {
  static properties = { ...WideFigure.properties, at: { state: true }, tier: { state: true }, machines: { attribute: false } };

  constructor() {
    super();
    /** Tokens chosen; null is the question's own length. @type {number | null} */
    this.at = null;
    this.tier = "host";
    /** @type {string[]} */
    this.machines = [];
  }

  connectedCallback() {
    this.replaceChildren(); // the server's sentence in its place
    super.connectedCallback();
  }

  get a() {
    return /** @type {import("./section-types").TiersAnswer} */ (/** @type {unknown} */ (this.answer));
  }

  get data() {
    return this.a.figures.tiers;
  }

  /** The index of the point of the curve that is chosen. */
  get index() {
    const want = this.at ?? this.data.tokens;
    const found = this.data.curve.findIndex((p) => p.tokens >= want);
    return found < 0 ? this.data.curve.length - 1 : found;
  }

  /** The tier chosen, or the nearest where the machine lacks it. */
  get chosen() {
    const { below } = this.data;
    return below.find((t) => t.name === this.tier) ?? below[0];
  }

  sentence() {
    return this.data.sentence;
  }

  picture() {
    return html`${this.controls()} ${this.pyramid()} ${this.data.curve.length ? this.times() : nothing}`;
  }

  controls() {
    const { curve, below, machine } = this.data;
    const names = this.machines.includes(machine) || !this.machines.length ? this.machines : [machine, ...this.machines];
    const point = curve[this.index];
    return html`<div class="controls" role="group" aria-label="Where it lives">
      ${names.length ? html`<p class="pick"><label>Machine <select @change=${(/** @type {any} */ e) => this.say("machine", e.target.value)}>${names.map((name) => html`<option ?selected=${name === machine} .selected=${name === machine}>${name}</option>`)}</select></label></p>` : nothing}
      ${point ? html`<div class="slider"><label for="tokens-back">Tokens of cache</label>
        <input id="tokens-back" type="range" min="0" max=${curve.length - 1} .value=${String(this.index)} aria-valuetext=${`${grouped(point.tokens)} tokens`} @input=${(/** @type {any} */ e) => (this.at = curve[e.target.value].tokens)}>
        <output for="tokens-back">${grouped(point.tokens)} tokens</output></div>` : nothing}
      ${below.length > 1 && point ? html`<fieldset class="seg"><legend>Kept in</legend>${below.map((t) => html`<label><input type="radio" name="tier" .checked=${t.name === this.chosen?.name} @change=${() => (this.tier = t.name)}><span>${t.label}</span></label>`)}</fieldset>` : nothing}
    </div>`;
  }

  /** @param {string} name @param {unknown} detail */
  say(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  /** One bar a tier, as wide as the logarithm of its size; the host link is the neck between. */
  pyramid() {
    const { rungs, link } = this.data;
    const { tiers } = this.a.tiers;
    const slim = this.width < 620;
    const row = slim ? SLIM.row : ROW;
    const sizes = tiers.map((t) => t.bytes).filter((b) => b != null);
    const widest = slim ? this.width : this.width * 0.42;
    const middle = slim ? this.width / 2 : this.width * 0.46;
    const wide = scaleLog([Math.min(...sizes) / 12, Math.max(...sizes) * 1.6], [0, widest]);
    const below = rungs.findIndex((r) => r.below);
    let y = 0;
    const parts = tiers.map((t, i) => {
      const neck = i === below && link ? this.neck(middle, y, slim) : nothing;
      if (neck !== nothing) y += slim ? SLIM.neck : NECK;
      const drawn = this.rung(t, rungs[i], { y, middle, wide: t.bytes == null ? widest : wide(t.bytes), slim });
      y += row;
      return svg`${neck}${drawn}`;
    });
    return html`<svg class="pyramid" width="100%" height=${y} role="img" aria-label=${this.sentence()}>${parts}</svg>`;
  }

  /** @param {import("./section-types").Tier} t @param {import("./section-types").Rung} rung @param {{y: number, middle: number, wide: number, slim: boolean}} at */
  rung(t, rung, { y, middle, wide, slim }) {
    const chosen = rung.below && this.data.curve.length && rung.name === this.chosen?.name;
    const look = !rung.below ? "weights" : chosen ? "cache" : t.bytes == null ? "open" : "tier";
    const ink = !rung.below ? "on-weights strong" : chosen ? "on-cache strong" : "";
    const size = t.bytes == null ? "no end of it" : memory(t.bytes);
    const rate = t.bytes_per_s == null ? "rate not published" : formats.rate(t.bytes_per_s);
    const top = y + (slim ? 24 : 3);
    const tall = slim ? 26 : ROW - 12;
    const inside = wide > size.length * 8 + 12;
    const text = top + tall / 2 + 5;
    return svg`<g>
      <rect class=${`beam ${look}`} x=${middle - wide / 2} y=${top} width=${wide} height=${tall} rx="2"><title>${rung.label}: ${size}, ${rate}</title></rect>
      <text class=${inside ? ink : "halo"} x=${inside ? middle : middle + wide / 2 + 8} y=${text} text-anchor=${inside ? "middle" : "start"}>${size}</text>
      <text class="strong" x="0" y=${slim ? y + 16 : y + 20}>${rung.label}</text>
      <text class=${slim ? "hidden" : "soft"} x="0" y=${y + 38}>${rung.larger}</text>
      <text class="strong" x=${slim ? this.width : this.width * 0.74} y=${slim ? y + 16 : y + 20} text-anchor=${slim ? "end" : "start"}>${rate}</text>
      <text class="soft" x=${slim ? this.width : this.width * 0.74} y=${slim ? y + 63 : y + 38} text-anchor=${slim ? "end" : "start"}>${rung.against}</text>
    </g>`;
  }

  /** @param {number} middle @param {number} y @param {boolean} slim */
  neck(middle, y, slim) {
    const { link } = this.data;
    if (!link) return nothing;
    const tall = slim ? SLIM.neck : NECK;
    const text = y + (slim ? 26 : tall / 2 + 4);
    return svg`<g>
      <path class="neck" d=${[-9, 9].map((dx) => `M${middle + dx} ${y + (slim ? 4 : -5)}V${y + tall + (slim ? 22 : 0)}`).join("")}/>
      <text x="0" y=${text}>host link</text>
      <text class="soft" x=${slim ? middle + 18 : 70} y=${text}>${slim ? "" : link.name}</text>
      <text class="strong" x=${slim ? this.width : this.width * 0.74} y=${text} text-anchor=${slim ? "end" : "start"}>${formats.rate(link.bytes_per_s)}</text>
    </g>`;
  }

  times() {
    const at = `figures.tiers.curve.${this.index}`;
    const a = /** @type {any} */ (this.a);
    return html`<p class="big">${number(a, `${at}.fetch_s.${this.chosen.name}`, "seconds")} <span class="soft">brings ${number(a, `${at}.tokens`, "tokens")} of cache (${number(a, `${at}.bytes_per_gpu`, "memory")} on a GPU) back from ${this.chosen.label}; computing them anew takes ${number(a, `${at}.recompute_s`, "seconds")}</span></p>
      ${this.plot()}`;
  }

  plot() {
    const { curve, below } = this.data;
    const crossing = this.a.tiers.crossings?.find((c) => c.name === this.chosen.name);
    const narrow = this.width < 620;
    const left = narrow ? 60 : 66;
    const right = this.width - (narrow ? 4 : 150);
    const [first, last] = [curve[0], curve[curve.length - 1]];
    const values = curve.flatMap((p) => [p.recompute_s, ...below.map((t) => p.fetch_s[t.name])]).filter((v) => v > 0);
    const x = scaleLog([first.tokens, last.tokens], [left, right]);
    const y = scaleLog([Math.min(...values) / 1.5, Math.max(...values) * 1.5], [PLOT.height - PLOT.bottom, PLOT.top]);
    const path = (/** @type {(p: Point) => number} */ of) => line(/** @type {(p: Point) => number} */ ((p) => x(p.tokens)), (p) => y(of(p)))(curve) ?? "";
    const powers = Array.from({ length: 14 }, (_, i) => 10 ** (i - 7)).filter((v) => v >= y.domain()[0] && v <= y.domain()[1]);
    const ticks = (narrow ? [1024, 32768, 1048576] : [1024, 4096, 16384, 65536, 262144, 1048576]).filter((n) => n >= first.tokens && n <= last.tokens);
    const here = curve[this.index];
    const labels = spread([
      { text: "computed anew", y: y(last.recompute_s), name: "" },
      ...below.map((t) => ({ text: `from ${t.label}`, y: y(last.fetch_s[t.name]), name: t.name })),
    ]);
    const least = crossing?.crossover_tokens;
    const marked = least != null && least > first.tokens && least <= last.tokens;
    return html`<svg class="plot" width="100%" height=${PLOT.height} role="img" aria-label=${`Seconds to fetch or to compute ${grouped(first.tokens)} to ${grouped(last.tokens)} tokens, both on logarithmic scales.`}>
      ${powers.map((v) => svg`<line class="grid" x1=${left} x2=${right} y1=${y(v)} y2=${y(v)}/><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${v >= 1 ? `${grouped(v)} s` : seconds(v)}</text>`)}
      ${ticks.map((n) => svg`<text class="soft" x=${x(n)} y=${PLOT.height - 22} text-anchor=${narrow && n === last.tokens ? "end" : "middle"}>${tokens(n)}</text>`)}
      <text class="soft" x=${right} y=${PLOT.height - 4} text-anchor="end">tokens of cache</text>
      <text class="soft" x="0" y="12">time until they are there</text>
      ${below.filter((t) => t.name !== this.chosen.name).map((t) => svg`<path class="line-weights" d=${path((p) => p.fetch_s[t.name])}/>`)}
      <path class="line-total" d=${path((p) => p.recompute_s)}/>
      <path class="line-cache" d=${path((p) => p.fetch_s[this.chosen.name])}/>
      ${narrow ? nothing : labels.map((l) => svg`<text class=${l.name === this.chosen.name ? "cache-ink" : l.name ? "soft" : "strong"} x=${right + 10} y=${l.y + 4}>${l.text}</text>`)}
      ${marked ? svg`<line class="mark" x1=${x(least)} x2=${x(least)} y1=${PLOT.top - 8} y2=${PLOT.height - PLOT.bottom}/><text class="soft halo" x=${x(least)} dx=${x(least) > this.width / 2 ? -6 : 6} y=${PLOT.top} text-anchor=${x(least) > this.width / 2 ? "end" : "start"}>fetching wins from ${grouped(least)}</text>` : nothing}
      <line class="mark" x1=${x(here.tokens)} x2=${x(here.tokens)} y1=${y(here.fetch_s[this.chosen.name])} y2=${y(here.recompute_s)}/>
      <circle class="here" cx=${x(here.tokens)} cy=${y(here.recompute_s)} r="5"/>
      <circle class="here" cx=${x(here.tokens)} cy=${y(here.fetch_s[this.chosen.name])} r="6"/>
    </svg>`;
  }

  key() {
    const a = /** @type {any} */ (this.a);
    const found = this.a.tiers.crossings ?? [];
    if (!found.length || !this.data.curve.length) return nothing;
    const tokens = number(a, "tiers.prompt_tokens", "tokens");
    return html`<ul class="key">
        <li><svg class="chip" width="22" height="16" aria-hidden="true"><path class="line-total" d="M0 8H22"/></svg><span>computed anew</span></li>
        <li><svg class="chip" width="22" height="16" aria-hidden="true"><path class="line-cache" d="M0 8H22"/></svg><span>fetched from ${this.chosen.label}</span></li>
        <li><svg class="chip" width="22" height="16" aria-hidden="true"><path class="line-weights" d="M0 8H22"/></svg><span>from the other tiers</span></li>
      </ul>
      <div class="table ways" tabindex="0" role="region" aria-label="What it takes to bring things up from each tier"><table>
        <thead><tr><th scope="col">from</th><th scope="col" class="n">all weights</th><th scope="col" class="n">cache of ${tokens}</th><th scope="col" class="n">quicker than anew</th></tr></thead>
        <tbody>${found.map((c, i) => html`<tr><th scope="row">${this.label(c.name)}</th><td class="n">${number(a, `tiers.crossings.${i}.load_weights_s`, "seconds")}</td><td class="n">${number(a, `tiers.crossings.${i}.fetch_s`, "seconds")}</td><td class="n">${c.crossover_tokens == null ? "never" : html`from ${number(a, `tiers.crossings.${i}.crossover_tokens`, "count")} token${c.crossover_tokens === 1 ? "" : "s"} on`}</td></tr>`)}
        <tr><th scope="row">computed anew</th><td class="n">–</td><td class="n">${number(a, "tiers.recompute_s", "seconds")}</td><td></td></tr></tbody>
      </table></div>`;
  }

  /** @param {string} name */
  label(name) {
    return this.data.below.find((t) => t.name === name)?.label ?? name;
  }

  caption() {
    const { stand_in: stand, machine, curve } = this.data;
    const asked = stand ? ` The card asked about does not state how fast it computes, so ${stand} stands in for it here; choose a machine above.` : "";
    const none = curve.length ? "" : " This model keeps no cache that could be fetched, or nothing is known of how fast it computes.";
    return `${machine}: each bar is as wide as the logarithm of its size, dark on the card, pale below it. Rates are of one GPU; what all share, host memory and NVMe, carries the bytes of all.${asked}${none}`;
  }

  table() {
    const { curve, below } = this.data;
    const found = this.a.tiers;
    if (!curve.length) return { head: ["tier", "bytes", "bytes a second"], rows: found.tiers.map((t, i) => [this.data.rungs[i].label, t.bytes ?? "", t.bytes_per_s ?? ""]) };
    return {
      head: ["tokens, or tier", "bytes on a GPU, or of the tier", "seconds anew, or bytes a second", ...below.map((t) => `seconds from ${t.label}`)],
      rows: [
        ...found.tiers.map((t, i) => [this.data.rungs[i].label, t.bytes ?? "", t.bytes_per_s ?? "", ...below.map(() => "")]),
        ...curve.map((p) => [`${grouped(p.tokens)} tokens`, p.bytes_per_gpu, exact(p.recompute_s), ...below.map((t) => exact(p.fetch_s[t.name]))]),
      ],
    };
  }
}

/** Seconds as a cell: all their digits. @param {number} value */
const exact = (value) => String(value);

/** Labels kept apart, in their order. @template {{y: number}} L @param {L[]} labels @returns {L[]} */
function spread(labels) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  sorted.forEach((label, i) => {
    if (i) label.y = Math.max(label.y, sorted[i - 1].y + 16);
  });
  return sorted;
}

customElements.define("kv-tiers", TierPyramid);
