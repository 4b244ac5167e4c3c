import { html, nothing } from "./vendor/lit.js";
import { doubling, ladder } from "./bars.js";
import { WideFigure, number } from "./figure.js";
import { capital, formats, grouped } from "./text.js";

/** @typedef {import("./section-types").Pulled} Pulled */

/** The rankings: their name, the key of their figure, how it is written. @type {Record<string, [string, string, string]>} */
const RANKINGS = {
  requests: ["requests", "requests", "requests"],
  step: ["time a token", "token_s", "seconds"],
  cost: ["dollars", "usd_per_million_output_tokens", "usd"],
};
const MOST = 8;
/** Levers named that alone reach what is wanted. */
const NAMED = 4;
/** Figures of serving: the key, the heading, how it is written. @type {[string, string, string][]} */
const SERVED = [
  ["ttft_s", "TTFT", "seconds"],
  ["ttft_p95_s", "its p95", "seconds"],
  ["tpot_s", "TPOT", "seconds"],
  ["output_tokens_per_s", "tokens a second", "rounded"],
  ["prefix_hit_ratio", "found cached", "percent"],
  ["usd_per_million_output_tokens", "dollars a million", "usd"],
];
/** Levers that only serving shows, by their names. */
const SERVING = /^(tiers|disaggregation)=/;
/** Gains beyond so many times are drawn on a log scale. */
const FAR = 30;

/** From today's number to the reachable one, lever by lever; each lever's own gain, price and source. */
export class LeverWaterfall extends WideFigure {
  static properties = { ...WideFigure.properties, by: { state: true }, busy: { attribute: false }, everything: { state: true }, goal: { state: true }, servable: { attribute: false }, served: { attribute: false }, serving: { attribute: false } };

  constructor() {
    super();
    this.by = "requests";
    /** What is going on while no answer is there. */
    this.busy = "";
    this.everything = false;
    /** Requests that the reader wants room for; 0 stands for the answer's own goal. */
    this.goal = 0;
    /** Whether anybody hears that requests are to be served. */
    this.servable = false;
    /** What serving them came to. @type {import("./section-types").ServedAnswer | null} */
    this.served = null;
    /** What is going on while they are served, or why they could not be. */
    this.serving = "";
    /** The levers in the order in which they came, and whether each is pulled. @type {Map<string, boolean>} */
    this.pulled = new Map();
    this.question = "";
  }

  connectedCallback() {
    this.replaceChildren(); // the server's sentence in its place
    super.connectedCallback();
  }

  get a() {
    return /** @type {import("./section-types").LeversAnswer} */ (/** @type {unknown} */ (this.answer));
  }

  get data() {
    return this.a.figures.levers;
  }

  /** @param {Map<string, unknown>} changed */
  willUpdate(changed) {
    if (!changed.has("answer") || !this.answer) return;
    const question = JSON.stringify(this.a.scenario);
    if (question !== this.question) {
      this.question = question;
      this.goal = 0;
      this.pulled = new Map(this.data.steps.map((s) => [s.id, true]));
      if (!(this.by in this.data.rankings)) this.by = "requests";
    }
  }

  /** @param {string} id */
  lever(id) {
    return this.a.levers.find((p) => p.id === id);
  }

  /** @param {string} id */
  name(id) {
    return this.lever(id)?.label ?? id;
  }

  /** Pull a lever, or let it go; those that exclude it go. @param {string} id @param {boolean} on */
  toggle(id, on) {
    const { families } = this.data;
    if (on) for (const [other] of this.pulled) if (other !== id && families[other] === families[id]) this.pulled.set(other, false);
    this.pulled.set(id, on);
    this.requestUpdate();
    this.dispatchEvent(new CustomEvent("together", { bubbles: true, detail: [...this.pulled].filter(([, yes]) => yes).map(([name]) => name) }));
  }

  /** The waterfall's rows: as it is, each lever in its place, together. @returns {import("./bars.js").Row[]} */
  get rows() {
    const { steps, before, reached } = this.data;
    const level = (/** @type {string} */ key, /** @type {string} */ label, /** @type {number} */ to, /** @type {string} */ kind) => ({ key, label, from: 0, to, kind, level: true, value: formats.requests(to) });
    return [
      level("before", "As it is", before, "cache"),
      ...[...this.pulled.keys()].map((id) => {
        const step = steps.find((s) => s.id === id);
        const label = this.name(id);
        if (!step) return { key: id, label, from: 0, to: 0, kind: "", value: "not pulled", off: true };
        return { key: id, label, from: step.from, to: step.to, kind: "cache", value: formats.change(step.requests), note: price(this.lever(id)) };
      }),
      level("reached", "Together", reached, "reached"),
    ];
  }

  sentence() {
    const { steps, before, reached } = this.data;
    if (!steps.length) return `Room for ${grouped(before)} requests; no lever is pulled.`;
    return `From ${grouped(before)} requests to ${grouped(reached)}: ${steps.map((s) => `${this.name(s.id)} ${formats.change(s.requests)}`).join(", ")}.`;
  }

  render() {
    if (!this.answer && this.busy) return html`<p class="soft" role="status">${this.busy}</p>`;
    return super.render();
  }

  picture() {
    const { height, marks } = ladder(this.rows, this.width, FAR);
    const { reached, before } = this.data;
    const a = /** @type {any} */ (this.a);
    return html`
      ${this.wanted()}
      <fieldset class="chips"><legend>Levers pulled together</legend>
        ${[...this.pulled].map(([id, on]) => html`<label><input type="checkbox" .checked=${on} @change=${(/** @type {any} */ e) => this.toggle(id, e.target.checked)}><span>${this.name(id)}</span></label>`)}
        ${this.pulled.size ? nothing : html`<span class="soft">None is safe to pull unasked; choose some below.</span>`}
      </fieldset>
      <p class="big">${number(a, "figures.levers.before", "requests")} → ${number(a, "figures.levers.reached", "requests")} <span class="soft">requests at once${reached === before ? "" : " with these levers"}${this.after()}${this.busy ? html` · <span role="status">${this.busy}</span>` : nothing}</span></p>
      <svg class="ladder" width="100%" height=${height} role="img" aria-label=${this.sentence()}>${marks}</svg>`;
  }

  /** Which levers alone reach what the reader wants; the easiest first, then those that go least beyond. */
  wanted() {
    const goal = this.goal || this.data.goal;
    const a = /** @type {any} */ (this.a);
    const { rankings, reached } = this.data;
    const enough = (rankings.requests ?? []).map((id) => this.a.levers.findIndex((p) => p.id === id)).filter((i) => (this.a.levers[i].after.requests ?? 0) >= goal);
    const far = (/** @type {number} */ i) => this.a.levers[i].after.requests ?? 0;
    enough.sort((i, j) => Number(this.a.levers[j].easy) - Number(this.a.levers[i].easy) || far(i) - far(j));
    const some = enough.slice(0, NAMED).map((i, k) => html`${k ? ", " : ""}${this.a.levers[i].label} (${number(a, `levers.${i}.after.requests`, "requests")})`);
    const none = reached >= goal ? html`no lever alone; the levers below together hold ${number(a, "figures.levers.reached", "requests")}.` : html`none of these levers, nor those below together.`;
    const more = enough.length > NAMED ? `; ${enough.length - NAMED} more in the table` : "";
    return html`<p class="ask"><label>What would make it <input type="number" min="1" .value=${String(goal)} @change=${(/** @type {any} */ e) => (this.goal = Math.max(0, Number(e.target.value)))}></label>?
      <span role="status">${this.data.before >= goal ? "There is room for so many already." : enough.length ? html`Any one of these: ${some}${more}.` : html`For that, ${none}`}</span></p>`;
  }

  /** The levers that only serving shows: a button, or what it came to. */
  only() {
    if (!this.servable) return nothing;
    const told = this.serving ? html`<span class="soft" role="status">${this.serving}</span>` : nothing;
    if (!this.served) return html`<p class="buttons row"><button type="button" @click=${() => this.dispatchEvent(new CustomEvent("serve", { bubbles: true }))}>Serve requests with each</button> ${told}</p><p class="soft small">Drafted tokens, tiers under the cache, and cards of their own for prompts change when things happen: only serving the same requests with and without them tells. It takes some seconds.</p>`;
    const a = /** @type {any} */ (this.served);
    const { before, levers } = this.served.served;
    const columns = SERVED.filter(([key]) => [before, ...levers.map((x) => x.after)].some((x) => x[key] != null));
    const cells = (/** @type {string} */ at, /** @type {any} */ after) => columns.map(([key, name, form]) => html`<td class="n" data-name=${name}>${after[key] == null ? "–" : number(a, `${at}.${key}`, form)}</td>`);
    return html`<h3>The same requests, served with each lever alone</h3>
      <div class="table served" tabindex="0" role="region" aria-label="Served with each lever alone"><table>
        <thead><tr><th scope="col">lever</th>${columns.map(([, name]) => html`<th scope="col" class="n">${name}</th>`)}</tr></thead>
        <tbody><tr><th scope="row">as it is</th>${cells("served.before", before)}</tr>
        ${levers.map((x, i) => html`<tr><th scope="row">${x.label}</th>${cells(`served.levers.${i}.after`, x.after)}</tr>`)}</tbody>
      </table></div>
      ${[...this.served.figures.served.notes, ...this.unserved()].map((note) => html`<p class="soft small">${capital(note)}.</p>`)}
      <p class="soft small">The same on the command line: <code>${this.served.take_away.command}</code></p>`;
  }

  /** Levers of serving that could not be served, and why. */
  unserved() {
    const known = new Set(this.a.left_out.filter((x) => !SERVING.test(x.id)).map((x) => x.id));
    return this.served ? this.served.left_out.filter((x) => SERVING.test(x.id) && !known.has(x.id)).map((x) => `${x.label}: ${x.why.replace(/\.$/, "")}`) : [];
  }

  /** What else the levers change. */
  after() {
    const { token_s: step, usd_per_million_output_tokens: usd } = this.data.after;
    return `${step == null ? "" : `; ${formats.seconds(step)} a token`}${usd == null ? "" : `; ${formats.usd(usd)} a million tokens`}`;
  }

  key() {
    const { rankings } = this.data;
    const a = /** @type {any} */ (this.a);
    const ids = rankings[this.by] ?? [];
    const shown = this.everything ? ids : ids.slice(0, MOST);
    const columns = Object.entries(RANKINGS).filter(([by]) => by in rankings);
    const index = (/** @type {string} */ id) => this.a.levers.findIndex((p) => p.id === id);
    return html`<div class="ranking">
      <fieldset class="seg"><legend>Each lever alone, ranked by</legend>
        ${Object.entries(RANKINGS).map(([by, [name]]) => html`<label><input type="radio" name="ranked" ?disabled=${!(by in rankings)} .checked=${this.by === by} @change=${() => (this.by = by)}><span>${name}</span></label>`)}
      </fieldset>
      ${columns.length < 3 ? html`<p class="soft small">What is not known of this card, or has no price, cannot be ranked by.</p>` : nothing}
      <div class="table" tabindex="0" role="region" aria-label="Each lever alone">
        <table role="table">
          <thead role="rowgroup"><tr role="row"><th scope="col">lever</th>${columns.map(([, [name]]) => html`<th scope="col" class="n">${name}</th>`)}<th scope="col">its price in quality</th><th scope="col">needs</th></tr></thead>
          <tbody role="rowgroup">
            <tr role="row"><th scope="row">as it is</th>${columns.map(([, [name, key, form]]) => html`<td class="n" data-name=${name}>${number(a, `before.${key}`, form)}</td>`)}<td></td><td></td></tr>
            ${shown.map((id) => this.ranked(id, index(id), columns))}
          </tbody>
        </table>
      </div>
      ${ids.length > MOST ? html`<p class="tools"><button type="button" aria-expanded=${this.everything ? "true" : "false"} @click=${() => (this.everything = !this.everything)}>${this.everything ? "Show fewer" : `Show all ${ids.length}`}</button></p>` : nothing}
      ${this.a.left_out.length ? html`<details><summary>${this.a.left_out.length} left out</summary><ul>${this.a.left_out.map((x) => html`<li>${x.label}: ${x.why}</li>`)}</ul></details>` : nothing}
      ${this.only()}
    </div>`;
  }

  /** @param {string} id @param {number} i @param {[string, [string, string, string]][]} columns */
  ranked(id, i, columns) {
    const p = /** @type {Pulled} */ (this.a.levers[i]);
    const a = /** @type {any} */ (this.a);
    const price = p.quality ? html`${p.quality.effect}<small>${p.quality.source}</small>` : "nobody published one";
    const latency = p.latency ? html`<p>${p.latency.effect}<small>${p.latency.source}</small></p>` : nothing;
    return html`<tr role="row">
      <th scope="row"><label class="pull"><input type="checkbox" .checked=${this.pulled.get(id) ?? false} @change=${(/** @type {any} */ e) => this.toggle(id, e.target.checked)}> ${p.label}</label></th>
      ${columns.map(([, [name, key, form]]) => html`<td class="n" data-name=${name}>${/** @type {any} */ (p.after)[key] == null ? "–" : number(a, `levers.${i}.after.${key}`, form)}</td>`)}
      <td>${price}${latency}</td><td>${p.needs.join("; ") || "a flag"}</td>
    </tr>`;
  }

  caption() {
    const scale = doubling(this.rows, FAR) ? " Log scale: dots are levels, lines the steps between them." : "";
    return `Each lever's share of the gain is what it adds on average over all orders in which they can be pulled, so that it does not hang on which comes first.${scale} Chosen beforehand: of each kind the best that keeps model and limit and whose cost in quality is published and small.`;
  }

  table() {
    return {
      head: ["lever", "requests", "seconds a token", "dollars a million tokens", "share of the gain together", "needs", "quality", "source"],
      rows: [
        ["as it is", this.a.before.requests ?? "", exact(this.a.before.token_s), exact(this.a.before.usd_per_million_output_tokens), "", "", "", ""],
        ...this.a.levers.map((p) => [p.label, p.after.requests ?? "", exact(p.after.token_s), exact(p.after.usd_per_million_output_tokens), exact(this.data.steps.find((s) => s.id === p.id)?.requests ?? null), p.needs.join("; "), p.quality?.effect ?? "", p.quality?.source ?? ""]),
        ["together", this.data.reached, exact(this.data.after.token_s), exact(this.data.after.usd_per_million_output_tokens), "", "", "", ""],
      ],
    };
  }
}

const NOTE = 36;

/** What a lever needs, in the width beside its bar. @param {Pulled | undefined} lever */
function price(lever) {
  const needs = lever?.one_flag ? "a flag away" : (lever?.needs[0] ?? "");
  return needs.length > NOTE ? `${needs.slice(0, NOTE - 1)}…` : needs;
}

/** @param {number | null} value */
const exact = (value) => (value == null ? "" : String(value));

customElements.define("kv-levers", LeverWaterfall);
