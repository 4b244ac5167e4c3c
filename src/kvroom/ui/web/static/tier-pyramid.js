import { html, nothing, svg } from "./vendor/lit.js";
import { line, scaleLog } from "./vendor/d3.js";
import { WideFigure, number } from "./figure.js";
import { formats, gb, grouped, memory, seconds, tokens } from "./text.js";

/** @typedef {import("./section-types").TierPoint} Point */

const PLOT = { height: 300, top: 30, bottom: 42 };

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

  /** A row a tier: its size and its rate as dots on two log scales; the host link is the neck between. */
  pyramid() {
    const { rungs, link } = this.data;
    const { tiers } = this.a.tiers;
    const slim = this.width < 660;
    const names = slim ? 0 : 122;
    const half = slim ? this.width : (this.width - names) / 2;
    const size = logScale(tiers.map((t) => t.bytes), names + 8, names + half - (slim ? 96 : 150));
    const rate = logScale([...tiers.map((t) => t.bytes_per_s), link?.bytes_per_s ?? null], names + half + 8, this.width - 150);
    const below = rungs.findIndex((r) => r.below);
    const row = slim ? 58 : 50;
    const top = 34;
    let y = top;
    const rows = tiers.map((t, i) => {
      const neck = i === below && link ? this.neck(y, slim, rate) : nothing;
      if (neck !== nothing) y += row;
      const drawn = this.rung(t, rungs[i], y, slim, size, rate);
      y += row;
      return svg`${neck}${drawn}`;
    });
    const axis = (/** @type {any} */ scale, /** @type {string} */ name, /** @type {(v: number) => string} */ write, /** @type {number[]} */ powers) =>
      svg`<text class="soft" x=${scale.range()[0]} y="12">${name}, log scale</text>
        ${powers.filter((v) => v >= scale.domain()[0] && v <= scale.domain()[1]).map((v) => svg`<line class="grid" x1=${scale(v)} x2=${scale(v)} y1="22" y2=${y - 6}/><text class="soft" x=${scale(v)} y="30" text-anchor="middle">${write(v)}</text>`)}`;
    return html`<svg class="pyramid" width="100%" height=${y} role="img" aria-label=${this.sentence()}>
      ${axis(size, "size", gb, slim ? [1e9, 1e12] : [1e6, 1e9, 1e12])}
      ${slim ? nothing : axis(rate, "rate of one GPU", (v) => `${gb(v)}/s`, [1e10, 1e12])}
      ${rows}
    </svg>`;
  }

  /** @param {import("./section-types").Tier} t @param {import("./section-types").Rung} rung @param {number} y @param {boolean} slim @param {any} size @param {any} rate */
  rung(t, rung, y, slim, size, rate) {
    const chosen = rung.below && this.data.curve.length && rung.name === this.chosen?.name;
    const look = `dot-tier${rung.below ? " far" : ""}${chosen ? " chosen" : ""}`;
    const bytes = t.bytes == null ? "no end of it" : memory(t.bytes);
    const speed = t.bytes_per_s == null ? "rate not published" : formats.rate(t.bytes_per_s);
    const at = y + (slim ? 34 : 24);
    const left = t.bytes == null ? size.range()[1] : size(t.bytes);
    const note = slim ? 0 : 14;
    return svg`<g>
      <text class="strong" x="0" y=${slim ? y + 16 : at + 5}>${rung.label}</text>
      <circle class=${look} data-tier=${rung.name} cx=${left} cy=${at} r="7"><title>${rung.label}: ${bytes}, ${speed}</title></circle>
      <text class=${chosen ? "cache-ink" : "strong"} x=${left + 13} y=${at + (note || !rung.larger ? -1 : 5)}>${bytes}</text>
      <text class=${slim ? "hidden" : "soft"} x=${left + 13} y=${at + note}>${rung.larger}</text>
      ${slim
        ? svg`<text class="strong" x=${this.width} y=${y + 16} text-anchor="end">${speed}</text><text class="soft" x=${this.width} y=${y + 52} text-anchor="end">${rung.against.split(",")[0]}</text>`
        : t.bytes_per_s == null
          ? svg`<text class="soft" x=${rate.range()[0]} y=${at + 5}>${speed}</text>`
          : svg`<circle class=${look} cx=${rate(t.bytes_per_s)} cy=${at} r="7"/><text class="strong" x=${rate(t.bytes_per_s) + 13} y=${at - 1}>${speed}</text><text class="soft" x=${rate(t.bytes_per_s) + 13} y=${at + note}>${this.width < 900 ? rung.against.split(",")[0] : rung.against}</text>`}
    </g>`;
  }

  /** @param {number} y @param {boolean} slim @param {any} rate */
  neck(y, slim, rate) {
    const { link } = this.data;
    if (!link) return nothing;
    const at = y + 24;
    const rest = slim ? svg`<text class="strong" x=${this.width} y=${at + 5} text-anchor="end">${formats.rate(link.bytes_per_s)}</text>` : svg`<circle class="dot-tier neck" cx=${rate(link.bytes_per_s)} cy=${at} r="7"/><text class="strong" x=${rate(link.bytes_per_s) + 13} y=${at + 5}>${formats.rate(link.bytes_per_s)}</text>`;
    return svg`<g>
      <line class="neck-line" x1="0" x2=${this.width} y1=${at} y2=${at}/>
      <text class="strong halo" x="0" y=${at + 5}>host link <tspan class="soft">${link.name}</tspan></text>
      ${rest}
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
    return html`<svg class="plot" width="100%" height=${PLOT.height} role="img" aria-label=${`Seconds to fetch or to compute ${grouped(first.tokens)} to ${grouped(last.tokens)} tokens, log scale on both axes.`}>
      ${powers.map((v) => svg`<line class="grid" x1=${left} x2=${right} y1=${y(v)} y2=${y(v)}/><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${v >= 1 ? `${grouped(v)} s` : seconds(v)}</text>`)}
      ${ticks.map((n) => svg`<text class="soft" x=${x(n)} y=${PLOT.height - 22} text-anchor=${narrow && n === last.tokens ? "end" : "middle"}>${tokens(n)}</text>`)}
      <text class="soft" x=${right} y=${PLOT.height - 4} text-anchor="end">tokens of cache, log scale</text>
      <text class="soft" x="0" y="12">time until they are there, log scale</text>
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
    return `${machine}. Log scale: each line to the right is a thousand times more for size, a hundred times for rate. Filled on the card, open below it. Rates are of one GPU; what all share, host memory and NVMe, carries the bytes of all.${asked}${none}`;
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

/** @param {(number | null)[]} values @param {number} left @param {number} right */
function logScale(values, left, right) {
  const known = values.filter((v) => v != null);
  return scaleLog([Math.min(...known) / 1.6, Math.max(...known) * 1.6], [left, right]);
}

/** Labels kept apart, in their order. @template {{y: number}} L @param {L[]} labels @returns {L[]} */
function spread(labels) {
  const sorted = [...labels].sort((a, b) => a.y - b.y);
  sorted.forEach((label, i) => {
    if (i) label.y = Math.max(label.y, sorted[i - 1].y + 16);
  });
  return sorted;
}

customElements.define("kv-tiers", TierPyramid);
