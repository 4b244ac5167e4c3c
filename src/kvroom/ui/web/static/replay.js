import { html, nothing, svg } from "./vendor/lit.js";
import { area, line, scaleLinear } from "./vendor/d3.js";
import { WideFigure, number } from "./figure.js";
import { BlockGrid, TINTS } from "./block-grid.js";
import { capital, clock, grouped, seconds } from "./text.js";

/** @typedef {import("./replay-run.js").Run} Run */
/** @typedef {import("./types").Frame} Frame */

/** Heights of the strips, where each begins, and the margins of all. */
const STRIP = { left: 62, right: 8, queue: [16, 66], first: [100, 62], gaps: [196, 44], height: 262 };
const LANE = { label: 82, chip: 34, high: 22, row: 30 };
const BESIDE_PX = 900;

/**
 * Runs played block by block. `runs` (one, or two in lock-step), `time` in simulated seconds and `followed`
 * (the number of a request, or 0) are set from outside; `seek` and `follow` are said when the reader points.
 */
export class Replay extends WideFigure {
  static properties = { ...WideFigure.properties, runs: { attribute: false }, time: { attribute: false }, followed: { attribute: false }, grown: { attribute: false } };

  constructor() {
    super();
    /** @type {Run[]} */
    this.runs = [];
    this.time = 0;
    this.followed = 0;
    /** Frames that have come, so that the strips follow. */
    this.grown = 0;
    /** @type {BlockGrid[]} */
    this.grids = [new BlockGrid(), new BlockGrid()];
    /** Strips as drawn last, by run. @type {Map<Run, {key: string, drawn: unknown}>} */
    this.strips = new Map();
  }

  /** @param {Run} run @returns {Frame | undefined} */
  frame(run) {
    return run.frames[run.index(this.time)];
  }

  /** The longer run's length. */
  get end_s() {
    return Math.max(0, ...this.runs.map((run) => run.end_s));
  }

  /** The next moment at which anything changes, before or after. @param {number} by 1 or -1 */
  moment(by) {
    const found = this.runs.map((run) => {
      const here = run.index(this.time);
      if (by > 0) return run.frames[here + 1]?.start_s ?? Infinity;
      const frame = run.frames[here];
      return !frame ? -Infinity : frame.start_s < this.time ? frame.start_s : (run.frames[here - 1]?.start_s ?? -Infinity);
    });
    const at = by > 0 ? Math.min(...found) : Math.max(...found);
    return Number.isFinite(at) ? at : this.time;
  }

  sentence() {
    return this.runs.map((run) => this.says(run)).join(" Beside it: ");
  }

  /** How one run stands. @param {Run} run */
  says(run) {
    const f = this.frame(run);
    if (!f) return "Nothing is played yet.";
    const lost = f.preempted_waiting ? `, ${grouped(f.preempted_waiting)} of them because their blocks were taken back` : "";
    return `At ${clock(f.start_s)}: ${grouped(f.running)} requests run, ${grouped(f.waiting)} wait${lost}. Of ${grouped(run.head.blocks)} blocks ${grouped(f.held)} are held, ${grouped(f.shared)} of them by several, ${grouped(f.kept)} are kept in case they are asked for again, ${grouped(f.free)} are free.`;
  }

  get panel() {
    return this.runs.length > 1 && this.width >= BESIDE_PX ? Math.floor((this.width - 36) / 2) : this.width;
  }

  picture() {
    return html`<div class="panels">${this.runs.map((run, i) => this.one(run, i))}</div>`;
  }

  /** @param {Run} run @param {number} i */
  one(run, i) {
    const width = this.panel;
    const f = this.frame(run);
    const grid = this.grids[i];
    if (f) {
      const anew = grid.lay(run.head.blocks, width);
      const changed = run.seek(run.index(this.time));
      grid.paint(run.owners, anew || /** @type {any} */ (grid).run !== run ? null : changed, this.followed);
      /** @type {any} */ (grid).run = run;
      grid.svg.setAttribute("aria-label", this.says(run));
    }
    return html`<div class="panel">
      <p class="which"><b>${run.head.name ?? ""}</b> <span class="soft">${grouped(run.head.blocks)} blocks</span> <output>${f ? clock(this.time) : ""}</output></p>
      ${run.error ? html`<p class="refused">${run.error}</p>` : nothing}
      ${f ? html`<div class="pool" @click=${(/** @type {MouseEvent} */ e) => this.point(e, run, grid)}>${grid.svg}</div>${this.key_of(f)}${this.lanes(run, width)}` : html`<p class="soft">…</p>`}
      ${f ? this.strip(run, width) : nothing}
    </div>`;
  }

  /** @param {MouseEvent} event @param {Run} run @param {BlockGrid} grid */
  point(event, run, grid) {
    const box = grid.svg.getBoundingClientRect();
    const owner = run.owners[grid.at(event.clientX - box.left, event.clientY - box.top)] ?? 0;
    this.follow(owner > 0 && owner !== this.followed ? owner : 0);
  }

  /** @param {number} n */
  follow(n) {
    this.dispatchEvent(new CustomEvent("follow", { bubbles: true, detail: n }));
  }

  /** @param {Frame} f */
  key_of(f) {
    return html`<ul class="key">
      <li><i class="chip cache"></i><span>${grouped(f.held)} held</span></li>
      <li><i class="chip shared"></i><span>${grouped(f.shared)} of them shared</span></li>
      <li><i class="chip left"></i><span>${grouped(f.kept)} kept, can be taken</span></li>
      <li><i class="chip free"></i><span>${grouped(f.free)} free</span></li>
    </ul>`;
  }

  /** Who runs, who waits, who was thrown out. @param {Run} run @param {number} width */
  lanes(run, width) {
    const f = /** @type {Frame} */ (this.frame(run));
    const room = Math.max(1, Math.floor((width - LANE.label - 70) / LANE.chip));
    const rows = /** @type {[string, Set<number>, number, string][]} */ ([
      ["running", run.running, f.running, ""],
      ["waiting", run.waiting, f.waiting - f.preempted_waiting, "waiting"],
      ["preempted", run.preempted, f.preempted_waiting, "thrown"],
    ]);
    return html`<svg class="lanes" width="100%" height=${LANE.row * 3} role="img" aria-label=${`Running ${f.running}, waiting ${f.waiting - f.preempted_waiting}, preempted ${f.preempted_waiting}.`} @click=${(/** @type {any} */ e) => e.target.dataset?.n && this.follow(Number(e.target.dataset.n) === this.followed ? 0 : Number(e.target.dataset.n))}>
      ${rows.map(([name, members, count, cls], row) => {
        const y = row * LANE.row + 4;
        const shown = [...members].slice(0, room);
        return svg`<text class="soft" x="0" y=${y + 16}>${name} <tspan class="count">${grouped(count)}</tspan></text>
          ${shown.map((n, i) => svg`<rect data-n=${n} class=${`${cls || `held t${n % TINTS}`}${n === this.followed ? " mine" : ""}`} x=${LANE.label + 24 + i * LANE.chip} y=${y} width=${LANE.chip - 3} height=${LANE.high} rx="3"/>
            <text class=${cls ? "on-waiting" : "on-cache"} pointer-events="none" text-anchor="middle" x=${LANE.label + 24 + i * LANE.chip + (LANE.chip - 3) / 2} y=${y + 16}>${n}</text>`)}
          ${count > shown.length ? svg`<text class="soft" x=${LANE.label + 28 + shown.length * LANE.chip} y=${y + 16}>…</text>` : nothing}`;
      })}
    </svg>`;
  }

  /** The whole run over time: drawn once, what is yet to come under a veil. @param {Run} run @param {number} width */
  strip(run, width) {
    const x = scaleLinear([0, this.end_s || 1], [STRIP.left, width - STRIP.right]);
    const key = `${width} ${run.frames.length} ${this.end_s}`;
    const old = this.strips.get(run);
    const drawn = old?.key === key ? old.drawn : this.draw(run, width, x);
    this.strips.set(run, { key, drawn });
    const now = x(Math.min(this.time, this.end_s));
    const seek = (/** @type {PointerEvent} */ e) => {
      if (!(e.buttons & 1)) return;
      const box = /** @type {Element} */ (e.currentTarget).getBoundingClientRect();
      const time = ((e.clientX - box.left - STRIP.left) / (width - STRIP.left - STRIP.right)) * this.end_s;
      this.dispatchEvent(new CustomEvent("seek", { bubbles: true, detail: Math.max(0, Math.min(this.end_s, time)) }));
    };
    return html`<svg class="strips" width="100%" height=${STRIP.height} role="img" aria-label=${this.strip_says(run)} @pointerdown=${seek} @pointermove=${seek}>
      ${drawn}
      <rect class="veil" x=${now} y="8" width=${Math.max(0, width - STRIP.right - now + 4)} height=${STRIP.height - 30}/>
      <line class="wall" x1=${now} x2=${now} y1="8" y2=${STRIP.height - 20}/>
    </svg>`;
  }

  /** @param {Run} run */
  strip_says(run) {
    if (!run.answer) return "The run over time.";
    const { ttft_s: first, itl_s: gap, preemptions } = run.answer;
    return `The run over time: ninety-nine of a hundred wait at most ${seconds(first.p99)} for the first token and ${seconds(gap.p99)} between tokens; ${grouped(preemptions)} times a request loses its blocks.`;
  }

  /** @param {Run} run @param {number} width @param {import("./vendor/d3.js").Scale} x */
  draw(run, width, x) {
    const frames = run.frames;
    const of = (/** @type {Frame} */ f) => x(f.start_s);
    const [top, high] = STRIP.queue;
    const most = Math.max(1, ...frames.map((f) => f.running + f.waiting));
    const y = scaleLinear([0, most], [top + high, top]);
    const band = (/** @type {(f: Frame) => number} */ low, /** @type {(f: Frame) => number} */ up) => area(of, (f) => y(low(f)), (f) => y(up(f)))(frames) ?? "";
    const firsts = frames.flatMap((f) => (f.first ?? []).map(([, wait]) => ({ at: f.start_s, wait })));
    const longest = Math.max(1e-9, ...firsts.map((p) => p.wait));
    const gaps = frames.filter((f) => f.gaps?.length);
    const slowest = Math.max(1e-9, ...gaps.map((f) => /** @type {number[][]} */ (f.gaps)[/** @type {number[][]} */ (f.gaps).length - 1][0]));
    const yf = scaleLinear([0, longest], [STRIP.first[0] + STRIP.first[1], STRIP.first[0]]);
    const yg = scaleLinear([0, slowest], [STRIP.gaps[0] + STRIP.gaps[1], STRIP.gaps[0]]);
    const base = (/** @type {number[]} */ strip, /** @type {string} */ label, /** @type {string} */ upper) => svg`
      <line class="grid" x1=${STRIP.left} x2=${width - STRIP.right} y1=${strip[0] + strip[1]} y2=${strip[0] + strip[1]}/>
      <text class="soft" x=${STRIP.left - 6} y=${strip[0] + 10} text-anchor="end">${upper}</text>
      <text class="soft halo" x=${STRIP.left + 4} y=${strip[0] - 4}>${label}</text>`;
    const narrow = width < 420;
    const gapLine = line(/** @type {(p: number[]) => number} */ (([at]) => x(at)), ([, gap]) => yg(gap));
    return svg`
      <path class="cache" d=${band(() => 0, (f) => f.running)}/>
      <path class="waiting" d=${band((f) => f.running, (f) => f.running + f.waiting - f.preempted_waiting)}/>
      <path class="thrown" d=${band((f) => f.running + f.waiting - f.preempted_waiting, (f) => f.running + f.waiting)}/>
      ${base(STRIP.queue, narrow ? "requests" : "requests: running, waiting, preempted", grouped(most))}
      ${firsts.map((p) => svg`<circle class="dot" cx=${x(p.at)} cy=${yf(p.wait)} r="2.2"/>`)}
      ${base(STRIP.first, "TTFT", seconds(longest))}
      <path class="line-gap" d=${gapLine(gaps.map((f) => [f.start_s, /** @type {number[][]} */ (f.gaps)[/** @type {number[][]} */ (f.gaps).length - 1][0]])) ?? ""}/>
      ${base(STRIP.gaps, narrow ? "ITL, longest" : "longest ITL (time between two tokens of a request)", seconds(slowest))}
      <text class="soft" x=${STRIP.left} y=${STRIP.height - 4}>0 s</text>
      <text class="soft" x=${width - STRIP.right} y=${STRIP.height - 4} text-anchor="end">${clock(this.end_s)}</text>`;
  }

  /** What came of it, each number with its formula; where two runs differ it is marked. */
  key() {
    const runs = this.runs.filter((run) => run.answer);
    if (!runs.length) return nothing;
    const same = (/** @type {string} */ path) => new Set(runs.map((run) => JSON.stringify(path.split(".").reduce((v, k) => v[k], run.answer)))).size === 1;
    return html`<div class="table results" tabindex="0" role="region" aria-label="What came of it"><table>
      <thead><tr><th scope="col">What came of it</th>${runs.map((run) => html`<th scope="col">${run.head.name}</th>`)}</tr></thead>
      <tbody>${RESULTS.map(([label, path, form]) => html`<tr class=${runs.length > 1 && !same(path) ? "differs" : ""}><th scope="row">${label}${runs.length > 1 && !same(path) ? html` <b title="differs">≠</b>` : nothing}</th>${runs.map((run) => html`<td>${number(run.answer, path, form)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
  }

  caption() {
    const { head } = this.runs[0] ?? {};
    if (!head) return nothing;
    const notes = head.notes?.length ? ` ${head.notes.map(capital).join(". ")}.` : "";
    return html`${head.says ?? ""}${notes} The same on the command line: <code>${head.command}</code>`;
  }

  table() {
    const runs = this.runs.filter((run) => run.answer);
    const value = (/** @type {Run} */ run, /** @type {string} */ path) => path.split(".").reduce((v, k) => v?.[k], run.answer) ?? "";
    return { head: ["figure", ...runs.map((run) => run.head.name)], rows: RESULTS.map(([label, path]) => [label, ...runs.map((run) => value(run, path))]) };
  }

  get drawings() {
    return [...this.querySelectorAll(".panel svg")].filter((s) => !s.closest(".key")).map((s) => /** @type {SVGSVGElement} */ (s));
  }
}

const RESULTS = [
  ["Requests answered", "requests.completed", "count"],
  ["TTFT, median", "ttft_s.p50", "seconds"],
  ["TTFT, p99", "ttft_s.p99", "seconds"],
  ["Inter-token latency, p99", "itl_s.p99", "seconds"],
  ["Preemptions", "preemptions", "count"],
  ["Prefix-cache hit rate", "prefix_hit_ratio", "percent"],
  ["Throughput, tokens a second", "output_tokens_per_s", "rounded"],
  ["Blocks held, peak", "kv_blocks.peak", "count"],
  ["Simulated time", "duration_s", "seconds"],
];

customElements.define("kv-replay", Replay);
