/** The workload simulated on the deployment, and the commands that start it. */
import { GONE, ask, lines, packed, refusal } from "./ask.js";
import { LitElement, html, nothing } from "./vendor/lit.js";
import { Near } from "./near.js";
import { pending } from "./pending.js";
import { settle } from "./roving.js";
import { formats, grouped } from "./text.js";

/** @typedef {import("./store.js").Store} Store */

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const SPREADS = [["ttft_s", "TTFT"], ["tpot_s", "TPOT"], ["itl_s", "ITL"], ["e2e_s", "Whole request"]];
const AT = ["p50", "p90", "p95", "p99", "max"];
const REST_MS = 300;

/** What is drawn where it stands. */
class Drawn extends LitElement {
  static properties = { content: { attribute: false } };

  constructor() {
    super();
    /** @type {unknown} */
    this.content = nothing;
  }

  createRenderRoot() {
    return this;
  }

  updated() {
    settle();
  }

  render() {
    return this.content;
  }
}
customElements.define("kv-drawn", Drawn);

/** @param {unknown} content @param {any} place */
const draw = (content, place) => (place.content = content);

/** @param {Store} store @param {{speak: (text: string) => void, mark: (error: any) => void}} page */
export function serving(store, { speak, mark }) {
  const [button, many, stop, said, place] = ["serve-run", "agents-run", "serve-stop", "serve-said", "served"].map(byId);
  /** @type {File | null} */
  let trace = null;
  let asking = new AbortController();
  let of = "";

  const say = (/** @type {string} */ text) => (said.textContent = text);
  const stale = () => place.classList.toggle("stale", Boolean(of) && of !== JSON.stringify([store.scenario, byId("slo").value, trace?.name]));

  /** @param {string} path @param {object} more of the question @param {(told: any) => unknown} drawn @param {(answer: any) => string} spoken */
  async function run(path, more, drawn, spoken) {
    asking.abort();
    const { signal } = (asking = new AbortController());
    const { scenario } = await store.standing();
    const slo = byId("slo").value.trim();
    of = JSON.stringify([store.scenario, byId("slo").value, trace?.name]);
    stop.hidden = false;
    mark(null);
    say("Simulating…");
    try {
      const body = { scenario, ...(slo ? { slo } : {}), ...more };
      for await (const told of lines(path, body, signal)) {
        if (signal.aborted) return;
        if (told.kind === "error") {
          say("");
          draw(html`<p class="err">${refusal(told.error)}</p>`, place);
          mark(told.error);
          speak(refusal(told.error));
        } else if (told.kind === "progress") say(`${grouped(told.done)}${told.of ? ` of ${grouped(told.of)}` : ""} requests answered`);
        else if (told.kind === "answer") {
          say("");
          draw(drawn(told), place);
          stale();
          speak(spoken(told.answer));
        }
      }
    } catch {
      if (!signal.aborted) say(refusal(GONE.error));
    } finally {
      if (asking.signal === signal) stop.hidden = true;
    }
  }
  button.addEventListener("click", async () => {
    const more = trace ? { trace: await packed(trace) } : {};
    pending(run("api/simulate", more, results, ({ requests }) => `${grouped(requests.completed)} of ${grouped(requests.arrived)} requests answered.`));
  });
  /** @param {string[]} changes */
  const hold = (changes) => pending(run("api/agents", { changes }, (told) => held(told, store.answered, changes, hold), ({ sentence }) => sentence));
  many.addEventListener("click", () => hold([]));
  const offer = () => {
    const come = store.answered.workload;
    many.hidden = Boolean(trace) || !(come?.agents || come?.agent);
  };
  store.addEventListener("answer", offer);
  offer();
  stop.addEventListener("click", () => {
    asking.abort();
    stop.hidden = true;
    say("Stopped.");
    button.focus();
  });
  store.addEventListener("answer", stale);
  byId("slo").addEventListener("input", stale);
  return {
    play: (/** @type {File | null} */ file) => {
      trace = file;
      offer();
      button.textContent = file ? `Simulate ${file.name === "pasted" ? "the trace" : file.name}` : "Simulate";
    },
  };
}

/** Changes that may let more agents hold: id, and what the button says. */
const CHANGES = [["host", "Try host memory below the cards"], ["kv_dtype=fp8", "Try an FP8 cache"]];

/**
 * How many agents hold, why no more, and what each change is worth.
 * @param {any} told @param {import("./types").Scenario} scenario @param {string[]} tried @param {(changes: string[]) => void} hold
 */
function held({ answer, command }, scenario, tried, hold) {
  const seconds = (/** @type {number | null} */ value) => (value == null ? "-" : formats.seconds(value));
  const rows = answer.variants.map((/** @type {any} */ one) => [one.label, ...(one.why ? [one.why] : [grouped(one.sessions), seconds(one.ttft_p95_s), seconds(one.tpot_p95_s), one.hit_ratio == null ? "-" : formats.percent(one.hit_ratio), one.usd_per_session_hour == null ? "-" : formats.usd(one.usd_per_session_hour)])]);
  const trials = answer.variants[0].trials.map((/** @type {any} */ one) => [`${grouped(one.users)}${one.met ? "" : ", missed"}`, seconds(one.ttft_p95_s), seconds(one.tpot_p95_s), formats.percent(one.hit_ratio), formats.percent(one.again_ratio)]);
  const left = CHANGES.filter(([id]) => !tried.includes(id) && !(id === "host" && scenario.tiers) && !(id === "kv_dtype=fp8" && scenario.kv_dtype && scenario.kv_dtype !== "auto" && scenario.kv_dtype !== "bf16"));
  return html`<ul class="kept"><li data-holds=${String(answer.holds)}><b>${answer.sentence}</b></li></ul>
    ${table("What each deployment holds", ["deployment", "agents", "TTFT p95", "TPOT p95", "prompts found cached", "$ an agent and hour"], rows)}
    ${left.length ? html`<p class="buttons row">${left.map(([id, says]) => html`<button type="button" @click=${() => hold([...tried, id])}>${says}</button>`)}</p>` : nothing}
    ${table("Loads that were tried as asked", ["agents at a time", "TTFT p95", "TPOT p95", "prompts found cached", "time spent computing evicted cache again"], trials)}
    <p class="soft">One draw of sessions. Three, and how far a fourth may lie from them: <code>${command}</code></p>`;
}

/** @param {string} name @param {string[]} head @param {string[][]} rows */
const table = (name, head, rows) =>
  html`<div class="table" tabindex="0" role="region" aria-label=${name}><table>
      <thead><tr>${head.map((one) => html`<th scope="col">${one}</th>`)}</tr></thead>
      <tbody>${rows.map(([first, ...rest]) => html`<tr><th scope="row">${first}</th>${rest.map((one) => html`<td colspan=${rest.length === 1 ? head.length - 1 : 1}>${one}</td>`)}</tr>`)}</tbody>
    </table></div>`;

/** @param {any} told */
function results({ answer, command }) {
  const { requests } = answer;
  const seconds = (/** @type {number | null} */ value) => (value == null ? "-" : formats.seconds(value));
  const facts = [
    ["Requests answered", `${grouped(requests.completed)} of ${grouped(requests.arrived)}${requests.dropped ? `, ${grouped(requests.dropped)} dropped` : ""}`],
    ["Output tokens/s", formats.requests(answer.output_tokens_per_s)],
    ["Goodput, requests/s", answer.goodput_requests_per_s == null ? "needs an objective" : formats.requests(answer.goodput_requests_per_s)],
    ["Prefix-cache hit rate", formats.percent(answer.prefix_hit_ratio)],
    ["Preemptions", grouped(answer.preemptions)],
    ["Blocks held at most", `${grouped(answer.kv_blocks.peak)} of ${grouped(answer.kv_blocks.total)}`],
  ];
  const kept = Object.entries(answer.slo ?? {});
  return html`${kept.length ? html`<ul class="kept">${kept.map(([name, one]) => html`<li data-holds=${String(one.met)}>${name}: ${seconds(one.value_s)} where ${seconds(one.limit_s)} is the objective: <b>${one.met ? "met" : "missed"}</b></li>`)}</ul>` : nothing}
    <div class="table" tabindex="0" role="region" aria-label="Times simulated"><table>
      <thead><tr><th scope="col">time</th>${AT.map((at) => html`<th scope="col">${at}</th>`)}</tr></thead>
      <tbody>${SPREADS.map(([key, name]) => html`<tr><th scope="row">${name}</th>${AT.map((at) => html`<td>${seconds(answer[key][at])}</td>`)}</tr>`)}</tbody>
    </table></div>
    <div class="table" tabindex="0" role="region" aria-label="What came of it"><table><tbody>${facts.map(([name, value]) => html`<tr><th scope="row">${name}</th><td>${value}</td></tr>`)}</tbody></table></div>
    ${answer.warnings.length ? html`<ul class="warnings">${answer.warnings.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>` : nothing}
    <p class="soft">The same on the command line: <code>${command}</code></p>`;
}

/** The deployment's commands, in every form. @param {Store} store @param {{speak: (text: string) => void}} page */
export function commands(store, { speak }) {
  const place = byId("launched");
  let form = "shell";
  /** @type {any} */
  let shown = null;
  let copied = "";
  const copy = async (/** @type {string} */ text) => {
    try {
      await navigator.clipboard.writeText(text);
      copied = "Copied";
      speak("Command copied");
    } catch {
      copied = "Select the text below";
    }
    again();
  };
  function again() {
    if (!shown) return;
    if (shown.error) {
      draw(html`<p class="err">${refusal(shown.error)}</p>`, place);
      return;
    }
    const now = shown.forms.find((/** @type {any} */ one) => one.form === form) ?? shown.forms[0];
    draw(
      html`${shown.refused ? html`<p class="err">${refusal(shown.refused)}</p>` : nothing}<fieldset class="seg"><legend>As</legend>${shown.forms.map((/** @type {any} */ one) => html`<label><input type="radio" name="launch-form" .value=${one.form} .checked=${one === now} @change=${() => pick(one.form)}><span>${one.form}</span></label>`)}</fieldset>
        <div class="block"><p class="tools"><button type="button" @click=${() => copy(now.text)}>Copy</button> <span class="soft">${copied}</span></p>
        <pre tabindex="0" role="region" aria-label=${`Command: ${now.form}`}><code>${now.text}</code></pre></div>
        ${shown.notes.length ? html`<ul class="warnings">${shown.notes.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>` : nothing}`,
      place,
    );
  }
  const pick = (/** @type {string} */ name) => {
    form = name;
    copied = "";
    again();
  };
  const near = new Near(place, {
    load: async () => null,
    ask: (scenario, signal) => ask("api/launch", scenario, { signal }),
    show: (answer) => {
      shown = answer;
      copied = "";
      again();
    },
    rest: REST_MS,
  });
  const go = () => {
    if (!store.error) near.want(store.scenario);
  };
  store.addEventListener("answer", go);
  go();
}
