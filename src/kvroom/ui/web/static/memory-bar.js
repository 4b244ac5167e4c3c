import { html, nothing } from "./vendor/lit.js";
import { Figure, number } from "./figure.js";
import { paint } from "./marks.js";
import { memory } from "./text.js";

/** Names of the accounts as the page says them. @type {Record<string, string>} */
const ACCOUNTS = { weights: "Weights", adapters: "Adapters", draft: "Draft model", activations: "Working space", runtime: "Runtime", graphs: "Graphs", encoder: "Image encoder" };

/** Between what an estimated account is likely to lie. @param {import("./types").Account} x */
const band = ({ low_bytes: low, high_bytes: high }) => (low === high ? nothing : html` <span class="soft">(${memory(low)} to ${memory(high)})</span>`);

/** The memory of all cards, filled request by request until it breaks. */
export class MemoryBar extends Figure {
  constructor() {
    super();
    /** @type {SVGSVGElement | null} */
    this.painted = null;
  }

  connectedCallback() {
    // What the server has painted is taken over, not painted again.
    this.painted ??= this.querySelector("svg") ?? document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.painted.remove();
    this.painted.setAttribute("class", "marks");
    this.painted.setAttribute("width", "100%");
    this.painted.setAttribute("role", "img");
    this.replaceChildren();
    super.connectedCallback();
  }

  get data() {
    return /** @type {import("./types").Answer} */ (this.answer).figures.memory;
  }

  sentence() {
    return this.data.drawing.sentence;
  }

  picture() {
    const svg = /** @type {SVGSVGElement} */ (this.painted);
    paint(svg, this.data.drawing);
    svg.classList.toggle("broken", this.data.waiting > 0);
    return svg;
  }

  key() {
    const m = this.data;
    const a = /** @type {import("./types").Answer} */ (this.answer);
    const own = m.accounts.filter((x) => x.name !== "weights");
    const full = m.waiting > 0 || m.free_bytes < m.request_bytes;
    return html`<ul class="key">
      <li><i class="chip weights"></i><span>Weights ${number(a, "figures.memory.weights_bytes", "memory")}</span></li>
      ${own.map((x) => html`<li><i class="chip own"></i><span>${ACCOUNTS[x.name] ?? x.name} ${number(a, `figures.memory.accounts.${m.accounts.indexOf(x)}.bytes`, "memory")}${band(x)}</span></li>`)}
      ${m.request_bytes && !m.over_bytes ? html`<li class="after"><i class="chip cache"></i><span>${number(a, "figures.memory.running", "count")} running, ${number(a, "figures.memory.request_bytes", "memory")} each</span></li>` : nothing}
      ${m.over_bytes ? html`<li><i class="chip over"></i><span>Too much by ${number(a, "figures.memory.over_bytes", "memory")}</span></li>` : html`<li class="after"><i class=${full ? "chip left" : "chip free"}></i><span>${full ? "Left over" : "Free"} ${number(a, "figures.memory.free_bytes", "memory")}</span></li>`}
      ${m.kept_bytes ? html`<li><i class="chip kept"></i><span>Kept free by the engine ${number(a, "figures.memory.kept_bytes", "memory")}</span></li>` : nothing}
      ${m.waiting ? html`<li><i class="chip waiting"></i><span>${number(a, "figures.memory.waiting", "count")} waiting</span></li>` : nothing}
    </ul>`;
  }

  caption() {
    const m = this.data;
    const many = m.gpus > 1 ? "The bar adds the cards up: each holds its slice. Ticks mark where one card's worth ends." : m.request_bytes ? "One block a request; the weights stay whatever comes." : "The weights stay whatever comes.";
    if (Math.abs(m.request_bytes - m.stored_bytes) <= m.stored_bytes / 50) return many;
    const a = /** @type {import("./types").Answer} */ (this.answer);
    return html`${many} A request stores ${number(a, "figures.memory.stored_bytes", "memory")}; the engine counts ${number(a, "figures.memory.request_bytes", "memory")}: whole blocks, padding, and room to work in.`;
  }

  table() {
    const m = this.data;
    return {
      head: ["part", "requests", "bytes each", "bytes", "from", "to"],
      rows: [
        ...m.accounts.map((x) => [ACCOUNTS[x.name] ?? x.name, "", "", x.bytes, x.low_bytes, x.high_bytes]),
        ["Requests running", m.running, m.request_bytes, m.running_bytes, "", ""],
        ["Free or left over", "", "", m.free_bytes, "", ""],
        ["Kept free by the engine", "", "", m.kept_bytes, "", ""],
        ["All cards", "", "", m.total_bytes, "", ""],
        ["Requests waiting", m.waiting, m.request_bytes, "", "", ""],
      ],
    };
  }
}

customElements.define("kv-memory", MemoryBar);
