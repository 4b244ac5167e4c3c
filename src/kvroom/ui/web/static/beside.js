/**
 * Two questions side by side: the bar asks one of them (A or B), every figure of Plan has its twin for the other, and
 * what differs is marked. The address holds both.
 */
import { ask, post, refusal } from "./ask.js";
import { Near } from "./near.js";
import { pending } from "./pending.js";
import { fromHash } from "./store.js";
import { cards, modelName, said, tokens } from "./text.js";

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const root = document.documentElement;

/** One question in a few words. @param {Answer} answer */
const short = ({ scenario: s }) => [modelName(s), cards(s), s.kv_dtype === "auto" ? "" : `cache ${s.kv_dtype}`, tokens(s.context_tokens), s.engine].filter((x) => x).join(" · ");

/** Keys of the Scenario whose fields are marked. */
const MARKED = ["model", "gpu", "gpu_count", "weight_dtype", "kv_dtype", "context_tokens", "concurrency", "engine", "engine_version"];

/** Figures that have an answer of their own: where it is asked, what draws it. @type {Record<string, {path: string, load: () => Promise<unknown>}>} */
const OWN = {
  "levers-figure": { path: "api/levers?explain=1", load: () => import("./lever-waterfall.js") },
  "reality-figure": { path: "api/reality", load: () => import("./stairs.js") },
};

/**
 * A twin that asks for itself once it is near; levers named by the reader go with it.
 * @param {any} twin @param {string} id @returns {(scenario: Scenario) => void}
 */
function asking(twin, id) {
  const { path, load } = OWN[id];
  const near = new Near(twin, {
    load,
    ask: ({ scenario, together }, signal) => ask(together ? `${path}&together=${encodeURIComponent(together.join(";"))}` : path, scenario, { signal }),
    show: (answer) => {
      if (answer.error) return;
      twin.classList.add("filled");
      twin.answer = answer;
    },
  });
  /** @type {Scenario} */
  let of = {};
  twin.addEventListener("together", (/** @type {CustomEvent} */ event) => near.want({ scenario: of, together: event.detail }));
  return (scenario) => {
    of = scenario;
    near.want({ scenario, together: null });
  };
}

export class Beside {
  /**
   * @param {Store} store @param {any[]} figures those that get a twin
   * @param {{speak: (text: string) => void, glide: () => void, fieldOf: (key: string) => HTMLElement | null}} page
   */
  constructor(store, figures, { speak, glide, fieldOf }) {
    this.store = store;
    this.figures = figures;
    this.speak = speak;
    this.glide = glide;
    this.fieldOf = fieldOf;
    /** The question that the bar does not ask. @type {{scenario: Scenario, answer: Answer} | null} */
    this.other = null;
    /** Which of the two the bar asks. @type {"A" | "B"} */
    this.side = "A";
    /** @type {Map<any, any>} */
    this.twins = new Map();
    /** How those twins are told of the question that ask for themselves. @type {Map<any, (scenario: Scenario) => void>} */
    this.asks = new Map();
    const own = store.fragment.bind(store);
    store.fragment = () => {
      if (!this.other) return own();
      const link = this.other.answer.take_away.link.replace(/^#/, "");
      const [a, b] = this.side === "A" ? [own(), link] : [link, own()];
      return `${a}&b=${b.replace(/^s=/, "")}`;
    };
    byId("compare-with").addEventListener("click", () => this.begin());
    byId("compare-end").addEventListener("click", () => this.end());
    for (const input of document.querySelectorAll('#versus input[name="side"]')) {
      input.addEventListener("change", () => this.turn(/** @type {any} */ (input).value));
    }
  }

  get on() {
    return this.other !== null;
  }

  /** The question as it stands stays as A; the bar goes on with B. */
  async begin() {
    const standing = await this.store.standing();
    if (this.other) return;
    this.store.step();
    this.other = standing;
    this.side = "B";
    this.show();
    this.store.saveAddress();
    byId("side-b").focus();
    this.speak("Two questions side by side. The bar now asks B, which is still the same as A.");
  }

  /** Only the question that the bar asks stays. */
  end() {
    this.store.step();
    this.clear();
    this.store.saveAddress();
    byId("compare-with").focus();
  }

  clear() {
    this.other = null;
    this.side = "A";
    this.show();
  }

  /** Let the bar ask the other one. @param {"A" | "B"} side */
  async turn(side) {
    const standing = await this.store.standing();
    if (!this.other || side === this.side) return;
    const { scenario, answer } = this.other;
    this.store.flushAddress();
    this.other = standing;
    this.side = side;
    this.store.keep(scenario, answer);
    this.glide();
    this.store.replace(scenario, false);
  }

  /**
   * The questions of an address: gives the one that the bar asks, null where there is none.
   * @param {string} hash @returns {Promise<Scenario | null>}
   */
  async from(hash) {
    const [a, b] = [fromHash(hash), fromHash(hash, "b")];
    if (!a || !b) {
      this.clear();
      return a;
    }
    const [asked, other] = this.side === "A" ? [a, b] : [b, a];
    const answer = await post(other);
    if (answer.error) throw new Error(refusal(answer.error));
    this.other = { scenario: other, answer };
    return asked;
  }

  /** Draw what is so now. */
  show() {
    if (!this.other && !root.classList.contains("comparing")) return;
    const { other, side } = this;
    const { answer } = this.store;
    if (this.on) pending(import("./versus.js"));
    root.classList.toggle("comparing", this.on);
    byId("versus").hidden = !this.on;
    byId("compare-with").hidden = this.on;
    byId("side-a").checked = side === "A";
    byId("side-b").checked = side === "B";
    const [a, b] = side === "A" || !other ? [answer, other?.answer] : [other.answer, answer];
    byId("versus-figure").answers = b ? [a, b] : null;
    this.twin();
    if (other) byId("versus-said").textContent = `${side === "A" ? "B" : "A"}: ${other.answer.verdict.sentence}`;
    this.mark();
  }

  /** Every figure's twin before or behind it, A first. */
  twin() {
    const { other, side } = this;
    for (const figure of this.figures) {
      const old = this.twins.get(figure);
      const first = side === "B";
      if (old && (!other || (old.nextElementSibling === figure) !== first)) {
        old.remove();
        this.twins.delete(figure);
        this.asks.delete(old);
      }
      if (!other) {
        delete figure.dataset.side;
        continue;
      }
      let twin = this.twins.get(figure);
      if (!twin) {
        twin = document.createElement(figure.localName);
        // Whoever turns a number of the twin turns that of the other question.
        for (const kind of ["lengths", "says"]) {
          twin.addEventListener(kind, async (/** @type {CustomEvent} */ event) => {
            await this.turn(first ? "A" : "B");
            figure.dispatchEvent(new CustomEvent(kind, { detail: event.detail }));
          });
        }
        if (first) figure.before(twin);
        else figure.after(twin);
        this.twins.set(figure, twin);
        if (figure.id in OWN) this.asks.set(twin, asking(twin, figure.id));
      }
      if (this.asks.has(twin)) this.asks.get(twin)?.(other.scenario);
      else twin.answer = other.answer;
      twin.dataset.side = `${first ? "A" : "B"}  ${short(other.answer)}`;
      figure.dataset.side = `${side}  ${short(this.store.answer)}`;
    }
  }

  /** Numbers of the text and fields of the bar that the other question answers otherwise. */
  mark() {
    const { other } = this;
    const { answer } = this.store;
    const name = this.side === "A" ? "B" : "A";
    for (const n of document.querySelectorAll("main section > :not([data-side]) kv-n:not([of])")) {
      const [path, form] = [n.getAttribute("figure") ?? "", n.getAttribute("as") ?? "text"];
      const text = other && !(/** @type {any} */ (n).own) ? said(other.answer, path, form) : "";
      if (text && text !== said(answer, path, form)) n.setAttribute("data-other", `${name}: ${text}`);
      else n.removeAttribute("data-other");
    }
    for (const key of MARKED) {
      const differs = other && JSON.stringify(other.answer.scenario[key] ?? null) !== JSON.stringify(answer.scenario[key] ?? null);
      const field = /** @type {any} */ (this.fieldOf(key)?.closest(".field"));
      if (!field) continue;
      field.classList.toggle("differs", Boolean(differs));
      if (differs) field.title = `${name}: ${typeof other.answer.scenario[key] === "object" ? "another" : (other.answer.scenario[key] ?? "full")}`;
      else field.removeAttribute("title");
    }
  }
}
