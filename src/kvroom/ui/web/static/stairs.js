import { html, nothing } from "./vendor/lit.js";
import { doubling, ladder } from "./bars.js";
import { WideFigure, number } from "./figure.js";
import { formats, memory } from "./text.js";

/** @typedef {import("./section-types").Stair} Stair */

/** Looks of the levels. @type {Record<string, string>} */
const LOOKS = { ceiling: "tier", engine: "cache", expected: "cache", shared: "shared", measured: "measured", said: "measured" };
/** Levels beyond so many times are drawn on a log scale. */
const FAR = 6;
/** A row on a slide, where all of them are seen at once. */
const SLIDE_ROW = 27;
/** Accounts of a log as the page says them. @type {Record<string, string>} */
const ACCOUNTS = { visible: "memory seen", weights: "weights", activations: "activations", runtime: "runtime", graphs: "graphs", kv: "cache" };

/** From the arithmetic ceiling to what engines give, what traffic makes of it, and what was measured. */
export class Stairs extends WideFigure {
  static properties = { ...WideFigure.properties, error: { attribute: false } };

  constructor() {
    super();
    /** Why a file could not be read. */
    this.error = "";
  }

  connectedCallback() {
    this.replaceChildren(); // the server's sentence in its place
    super.connectedCallback();
  }

  get a() {
    return /** @type {import("./section-types").RealityAnswer} */ (/** @type {unknown} */ (this.answer));
  }

  get data() {
    return this.a.figures.reality;
  }

  sentence() {
    const told = this.a.file?.difference?.sentence;
    return told ? `${this.data.sentence} ${told}` : this.data.sentence;
  }

  /** @returns {import("./bars.js").Row[]} */
  get rows() {
    return this.data.stairs.map((s) => ({
      key: s.key,
      label: s.label,
      from: s.from,
      to: s.to,
      level: s.level,
      kind: s.level ? LOOKS[s.key] : s.change < 0 ? "left" : "gain",
      value: s.level ? formats.requests(s.to) : formats.change(s.change),
      note: this.band(s),
      ...(s.level && s.low != null ? { low: s.low, high: s.high } : {}),
    }));
  }

  /** @param {Stair} s */
  band(s) {
    if (s.key === "measured") return "printed by the engine";
    if (s.low == null || s.high == null) return s.source;
    return `${s.source}, ${(s.level ? formats.requests : formats.change)(s.low)} to ${(s.level ? formats.requests : formats.change)(s.high)}`;
  }

  render() {
    if (!this.answer && this.error) return html`<p class="fault" role="alert">${this.error}</p>`;
    return super.render();
  }

  picture() {
    const { height, marks } = ladder(this.rows, this.width, FAR, this.closest(".slide") ? SLIDE_ROW : undefined);
    return html`${this.said()} ${this.lengths()} ${this.told()}
      <svg class="ladder" width="100%" height=${height} role="img" aria-label=${this.sentence()}>${marks}</svg>`;
  }

  /** What the reader's engine says, and how that comes about. */
  said() {
    if (this.a.file) return nothing;
    const { engine, against, stairs } = this.data;
    if (!stairs.length) return nothing;
    const said = stairs.find((s) => s.key === "said")?.to;
    const predicted = stairs.findIndex((s) => s.key === "engine");
    return html`<p class="ask"><label>My engine says it has room for <input type="number" min="0" step="any" placeholder="13" .value=${said == null ? "" : String(said)} @change=${(/** @type {any} */ e) => this.dispatchEvent(new CustomEvent("says", { bubbles: true, detail: e.target.value }))}></label> requests of the longest length.
      <span role="status">${against || (predicted < 0 ? "" : html`Of ${engine} ${number(/** @type {any} */ (this.a), `figures.reality.stairs.${predicted}.to`, "requests")} ${this.likely(stairs[predicted])} is to be expected; the stairs below say why.`)}</span></p>`;
  }

  /** @param {Stair} s */
  likely(s) {
    return s.low == null || s.high == null ? "" : `(${formats.requests(s.low)} to ${formats.requests(s.high)})`;
  }

  lengths() {
    const { lengths, length } = this.data;
    const chosen = lengths.find((x) => x.id === length);
    return html`<fieldset class="seg"><legend>Lengths of requests</legend>
      ${lengths.map((x) => html`<label><input type="radio" name="lengths" .checked=${x.id === length} @change=${() => this.dispatchEvent(new CustomEvent("lengths", { bubbles: true, detail: x.workload }))}><span>${x.label}</span></label>`)}
    </fieldset><p class="soft small">${chosen ? chosen.says : "as the question above says them"}</p>`;
  }

  /** What the dropped file says, first the difference. */
  told() {
    const { file } = this.a;
    if (this.error) return html`<p class="fault" role="alert">${this.error}</p>`;
    if (!file) return nothing;
    const { difference: off } = file;
    const lines = file.lines.filter((l) => l.printed_bytes != null);
    return html`<div class="file" role="status">
      <h3>${file.title}</h3>
      ${off ? html`<p class="off"><strong>${off.sentence}</strong> ${off.reason ? html`Why: ${off.reason}.` : nothing} ${off.flag ? html`What moves it: <code>${off.flag}</code>.` : nothing}</p>` : nothing}
      ${lines.length ? html`<div class="table" tabindex="0" role="region" aria-label="Predicted and measured, account by account"><table role="table">
        <thead role="rowgroup"><tr role="row"><th scope="col">one GPU</th><th scope="col" class="n">predicted</th><th scope="col" class="n">measured</th><th scope="col" class="n">difference</th><th scope="col">reason</th><th scope="col">flag</th></tr></thead>
        <tbody role="rowgroup">${lines.map((l) => html`<tr role="row"><th scope="row">${ACCOUNTS[l.name] ?? l.name.replace(/_/g, " ")}</th><td class="n">${l.predicted_bytes == null ? "–" : memory(l.predicted_bytes)}</td><td class="n">${memory(/** @type {number} */ (l.printed_bytes))}</td><td class="n">${l.difference_bytes == null ? "–" : signed(l.difference_bytes)}</td><td>${l.reason}</td><td><code>${l.difference_bytes ? l.flag : ""}</code></td></tr>`)}</tbody>
      </table></div>` : nothing}
      ${file.notes.length ? html`<ul class="small">${file.notes.map((n) => html`<li>${n}</li>`)}</ul>` : nothing}
      <p class="row buttons"><button type="button" class="go" @click=${() => this.dispatchEvent(new CustomEvent("take", { bubbles: true, detail: this.a.asked }))}>Ask the whole page about it</button><button type="button" @click=${() => this.dispatchEvent(new CustomEvent("away", { bubbles: true }))}>Take the file away</button></p>
    </div>`;
  }

  key() {
    const a = /** @type {any} */ (this.a);
    return html`<ul class="key">${this.data.stairs.map((s, i) => (s.level ? html`<li><i class=${`chip ${LOOKS[s.key]}`}></i><span>${s.label} ${number(a, `figures.reality.stairs.${i}.to`, "requests")}</span></li>` : html`<li><i class=${`chip ${s.change < 0 ? "left" : "gain"}`}></i><span>${s.label} ${number(a, `figures.reality.stairs.${i}.change`, "change")}</span></li>`))}</ul>`;
  }

  caption() {
    const { stands_in: stands, engine, stairs } = this.data;
    if (!stairs.length) return "This model keeps nothing from token to token: memory sets no limit to how many requests it serves.";
    const played = stairs.some((s) => s.key === "expected");
    const lent = [stands.includes("engine") ? `plain arithmetic has no engine, so ${engine} stands in` : "", played && stands.includes("lengths") ? "no lengths are asked for, so the first of those above stand in" : ""].filter(Boolean);
    const unplayed = played || !stairs.length ? "" : ` What lengths and prefixes make of it cannot be said: they are longer than the longest request, or not modelled for this ${engine}.`;
    const said = lent.length ? ` In the question above ${lent.join("; ")}.` : "";
    return `Requests at once, of the longest length down to the engine's number, of the lengths chosen after it.${doubling(this.rows, FAR) ? " Log scale: dots are levels, lines the steps between them." : ""} The whisker is where the engine's number is likely to lie.${unplayed}${said}`;
  }

  table() {
    return {
      head: ["step", "requests before", "requests after", "change", "from", "to", "source"],
      rows: this.data.stairs.map((s) => [s.label, s.level ? "" : String(s.from), String(s.to), s.level ? "" : String(s.change), s.low ?? "", s.high ?? "", s.source]),
    };
  }
}

/** @param {number} bytes */
const signed = (bytes) => (bytes ? `${bytes < 0 ? "−" : "+"}${memory(Math.abs(bytes))}` : "0");

customElements.define("kv-reality", Stairs);
