/** The fields of the instrument: each asks a key of the Scenario, says what is asked, and is told when it is wrong. */
import { ask } from "./ask.js";
import { Combo } from "./plan-combo.js";
import { Timer } from "./pending.js";
import { capital, formats, grouped } from "./text.js";

/** @typedef {import("./types").Scenario} Scenario */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./plan-combo.js").Option} Option */

const TYPING_MS = 220;
const DEGREES = ["tp", "pp", "dp", "ep", "dcp"];
/** Keys that the question's choices hang on. */
const BEARING = ["model", "gpu", "gpu_count", "engine", "engine_version", "engine_args", "weight_dtype", "kv_dtype", ...DEGREES];
const OWN = "your own";

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);

/** The value at a dotted key. @param {Scenario} scenario @param {string} key */
const valueOf = (scenario, key) => key.split(".").reduce((value, part) => (value == null || typeof value !== "object" ? undefined : value[part]), /** @type {any} */ (scenario));

/** An object without what is not said; null of an empty one. @param {any} value @returns {any} */
function kept(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value === "" ? null : value;
  const rest = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, kept(part)]).filter(([, part]) => part != null));
  return Object.keys(rest).length ? rest : null;
}

/** The change that sets a dotted key, its object otherwise as it is. @param {Scenario} scenario @param {string} key @param {any} value @returns {Scenario} */
function setting(scenario, key, value) {
  const [first, ...rest] = key.split(".");
  if (!rest.length) return { [first]: value };
  const base = typeof scenario[first] === "object" && scenario[first] ? scenario[first] : {};
  const inner = setting(base, rest.join("."), value);
  return { [first]: kept({ ...base, ...inner }) };
}

const WHOLE = /^\d+$/;
const PLAIN_TOKENS = /^\d[\d_,]*(\.\d+)?\s*[kKmM]?$/;
/** What is typed, as JSON holds it; what is no number is left for Python to refuse. @param {string} text @returns {any} */
const number = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
/** @param {string} text @returns {any} */
function json(text) {
  if (!/^[[{"]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
/** @param {string} text */
const pairs = (text) =>
  Object.fromEntries(
    text
      .split("\n")
      .map((line) => line.trim().replace(/^--/, ""))
      .filter((line) => line)
      .map((line) => {
        const at = line.search(/[=\s]/);
        return at < 0 ? [line.replace(/-/g, "_"), true] : [line.slice(0, at).replace(/-/g, "_"), word(line.slice(at + 1).trim())];
      }),
  );
/** @param {string} text @returns {any} */
const word = (text) => (text === "true" || text === "false" ? text === "true" : /^[[{]/.test(text) ? json(text) : number(text));

/** A value as its field writes it. @param {any} value */
const written = (value) => (value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
/** @param {Record<string, any>} value */
const lined = (value) => Object.entries(value ?? {}).map(([key, part]) => `${key}=${written(part)}`).join("\n");

export class Form {
  /** @param {Store} store @param {{glide: () => void, speak: (text: string) => void}} page */
  constructor(store, { glide, speak }) {
    this.store = store;
    this.glide = glide;
    this.speak = speak;
    this.form = byId("question");
    /** @type {HTMLInputElement[]} */
    this.fields = [...this.form.querySelectorAll("[data-key]:not([data-combo]), [data-limit]")];
    this.timer = new Timer();
    /** @type {Map<string, Combo>} */
    this.combos = new Map();
    /** Choices by field and by what they hang on. @type {Map<string, Promise<Option[]>>} */
    this.choices = new Map();
    /** @type {Promise<any> | null} */
    this.catalogue = null;
    for (const field of this.fields) {
      field.addEventListener("input", () => this.typed(field));
      field.addEventListener("change", () => this.commit(field));
      field.autocomplete = "off";
    }
    this.form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
    this.form.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const field = /** @type {any} */ (event.target);
      if (event.key === "Enter" && this.fields.includes(field) && field.localName === "input") this.commit(field);
    });
    for (const input of this.form.querySelectorAll("[data-combo]")) this.combo(/** @type {HTMLInputElement} */ (input));
  }

  // ---- asking ----

  /** @param {HTMLInputElement} field */
  typed(field) {
    if (field.localName === "textarea") return; // whole lines only
    field.dataset.typed = "";
    this.timer.set(() => this.commit(field), TYPING_MS);
  }

  /** @param {HTMLInputElement} field */
  commit(field) {
    this.timer.clear();
    delete field.dataset.typed;
    const change = this.change(field);
    if (!change || JSON.stringify(kept({ ...this.store.scenario, ...change })) === JSON.stringify(kept({ ...this.store.scenario }))) {
      if (!this.store.refused) this.mark(null);
      return;
    }
    this.glide();
    this.store.change(change, field.id);
  }

  /** What a field asks. @param {HTMLInputElement} field @returns {Record<string, any> | null} */
  change(field) {
    const { scenario, answer } = this.store;
    const text = field.value.trim();
    const value = text === "" ? null : text;
    if (field.dataset.limit) return this.limit(field.dataset.limit, value);
    const key = field.dataset.key ?? "";
    switch (field.dataset.as) {
      case "flag":
        return setting(scenario, key, field.checked || null);
      case "whole":
        if (key === "gpu_count") return { gpu_count: value && number(value), ...Object.fromEntries(DEGREES.map((degree) => [degree, null])) };
        return setting(scenario, key, value && number(value));
      case "number":
        return setting(scenario, key, value && number(value));
      case "degree": {
        const now = Object.fromEntries(DEGREES.map((degree) => [degree, valueOf(scenario, degree) ?? answer.figures.card.layout[degree]]));
        return { ...now, [key]: value && number(value), gpu_count: null };
      }
      case "lengths": {
        const [tokens, spec] = [key, field.dataset.spec ?? ""].map((each) => each.replace("workload.", ""));
        const isPlain = value !== null && PLAIN_TOKENS.test(value);
        const { lengths, ...rest } = scenario.workload ?? {};
        const said = isPlain ? { [tokens]: WHOLE.test(value) ? Number(value) : value } : { [spec]: value };
        return { workload: kept({ ...rest, lengths: { ...lengths, [spec]: null }, [tokens]: null, [spec]: null, ...said }) };
      }
      case "tokens":
        return setting(scenario, key, value && (WHOLE.test(value) ? Number(value) : value));
      case "spec":
        return setting(scenario, key, value && number(value));
      case "json":
        return setting(scenario, key, value && json(value));
      case "pairs": {
        const said = pairs(text);
        return { [key]: kept(said) };
      }
      case "price": {
        const name = typeof scenario.gpu === "string" ? answer.scenario.gpu : scenario.gpu?.name;
        return { prices: value === null ? null : { [name]: number(value.replace(/^\$/, "")) } };
      }
      default:
        if (key.startsWith("gpu.")) return this.ownCard(key, value);
        return setting(scenario, key, value);
    }
  }

  /** An engine's own flag. @param {string} name @param {string | null} value */
  limit(name, value) {
    const { flag } = this.store.answer.figures.card.limits[name];
    return flag ? setting(this.store.scenario, `engine_args.${flag}`, value && number(value)) : null;
  }

  /** A card by value: the named one's figures until they are told otherwise. @param {string} key @param {string | null} value */
  ownCard(key, value) {
    const { scenario } = this.store;
    const name = typeof scenario.gpu === "string" ? scenario.gpu : scenario.gpu.name;
    const base = typeof scenario.gpu === "object" ? scenario.gpu : { name: `my ${name}`, ...this.cardFacts };
    const rest = setting({ gpu: base }, key, value && (WHOLE.test(value) ? Number(value) : value));
    return { gpu: rest.gpu };
  }

  // ---- choosing ----

  /** @param {HTMLInputElement} input */
  combo(input) {
    const kind = input.dataset.combo ?? "";
    const combo = new Combo(input, {
      options: () => this.options(kind),
      choose: (option) => this.take(kind, option, input.id),
      typed: (text) => this.takeText(kind, text, input.id),
      speak: this.speak,
    });
    this.combos.set(kind, combo);
    input.addEventListener("focus", () => void this.options(kind).catch(() => null), { once: true });
  }

  /** @param {string} kind @returns {Promise<Option[]>} */
  async options(kind) {
    if (kind === "models" || kind === "gpus") {
      this.catalogue ??= ask("api/catalogue", {}).catch((error) => {
        this.catalogue = null;
        throw error;
      });
      const rows = (await this.catalogue)[kind];
      return rows.map((/** @type {any} */ row) => ({ value: row.name, label: row.name, group: row.group, words: row.words.join(" "), says: kind === "gpus" ? `${formats.memory(row.memory_bytes)}, ${formats.rate(row.memory_bytes_per_s)}` : row.words[0] }));
    }
    const { scenario } = this.store;
    const asked = Object.fromEntries(BEARING.filter((key) => scenario[key] != null).map((key) => [key, scenario[key]]));
    if (kind === "layout") for (const key of ["context_tokens", "concurrency", "workload"]) if (scenario[key] != null) asked[key] = scenario[key];
    const key = JSON.stringify([kind, asked]);
    if (this.choices.size > 60) this.choices.clear();
    if (!this.choices.has(key)) {
      const found = ask(`api/choices?of=${kind}`, asked).then((answer) => {
        if (answer.error) throw answer.error;
        return answer[kind];
      });
      this.choices.set(key, found);
      found.catch(() => this.choices.delete(key));
    }
    try {
      return await /** @type {Promise<Option[]>} */ (this.choices.get(key));
    } catch {
      return []; // the question itself is refused: the field says why; what is typed still counts
    }
  }

  /** @param {string} kind @param {Option} option @param {string} id */
  take(kind, option, id) {
    this.glide();
    if (kind === "models") this.store.change({ model: option.value }, id);
    else if (kind === "gpus") this.store.change({ gpu: option.value }, id);
    else this.store.change(option.changes ?? {}, id);
  }

  /** What was typed and is no choice. @param {string} kind @param {string} text @param {string} id */
  takeText(kind, text, id) {
    const key = byId(id).dataset.key;
    const value = text === "" || text === "auto" ? null : text;
    if (kind === "layout") {
      const said = Object.fromEntries([...text.matchAll(/(tp|pp|dp|ep|dcp)\s*=?\s*(\d+)/gi)].map(([, name, degree]) => [name.toLowerCase(), Number(degree)]));
      const usual = Object.fromEntries(DEGREES.map((degree) => [degree, null]));
      this.store.change(Object.keys(said).length ? { ...usual, ...said, gpu_count: null } : { ...usual, gpu_count: this.store.answer.scenario.gpu_count }, id);
      return;
    }
    if (value === null && (key === "model" || key === "gpu")) {
      this.show();
      return;
    }
    this.glide();
    const [, name, count] = kind === "gpus" ? (text.match(/^(.+):(\d+)$/) ?? []) : [];
    if (name) this.store.change({ gpu: name, gpu_count: Number(count), ...Object.fromEntries(DEGREES.map((degree) => [degree, null])) }, id);
    else this.store.change(kind === "engine" ? { engine: value, engine_version: null, engine_args: null } : { [key]: value }, id);
  }

  // ---- saying ----

  /** Every field says what is asked, its placeholder what holds where nothing is. */
  show() {
    const { answer, scenario, error } = this.store;
    const { card } = answer.figures;
    const settled = answer.scenario;
    this.cardFacts = card.facts.gpu;
    const own = typeof scenario.gpu === "object" ? scenario.gpu : null;
    this.say("models", typeof scenario.model === "string" ? scenario.model : `${OWN} config`);
    this.say("gpus", own ? `${OWN}: ${own.name}` : scenario.gpu);
    this.say("weight_dtype", scenario.weight_dtype ?? "");
    this.combos.get("weight_dtype")?.input.setAttribute("placeholder", `the checkpoint's own (${card.facts.weights})`);
    this.say("kv_dtype", scenario.kv_dtype ?? "auto");
    this.say("engine", scenario.engine ?? settled.engine);
    this.say("engine_version", scenario.engine_version ?? "");
    this.combos.get("engine_version")?.input.setAttribute("placeholder", card.facts.version ? `newest modelled (${card.facts.version})` : "any");
    const degrees = DEGREES.filter((degree) => scenario[degree] > 1).map((degree) => `${degree} ${scenario[degree]}`).join(" ");
    this.say("layout", card.layout.chosen && !error ? `chosen for you: ${card.layout.says}` : degrees || card.layout.says);
    byId("layout-why").textContent = card.layout.chosen ? card.layout.why : "";
    for (const field of this.fields) if (!("typed" in field.dataset) && document.activeElement !== field) this.fill(field, scenario, settled);
    for (const field of this.fields) {
      const limit = field.dataset.limit && card.limits[field.dataset.limit];
      if (limit) {
        field.disabled = !limit.flag;
        field.placeholder = limit.flag ? written(limit.value) : `no such flag of ${settled.engine}`;
        field.title = limit.flag;
      } else if (field.dataset.as === "degree") field.placeholder = written(card.layout[field.dataset.key ?? ""]);
      else if (field.id === "context") field.placeholder = `${grouped(settled.context_tokens)} (the model's own)`;
      else if (field.id === "price-hour") field.placeholder = card.facts.usd_per_hour == null ? "not known" : String(card.facts.usd_per_hour);
    }
    const { gpu } = card.facts;
    const rates = gpu.flops_per_s;
    const facts = { "own-bytes": formats.gb(gpu.memory_bytes), "own-rate": formats.rate(gpu.memory_bytes_per_s), "own-bf16": rates.bf16 && `${formats.short(rates.bf16)}FLOPS`, "own-fp8": rates.fp8 && `${formats.short(rates.fp8)}FLOPS`, "own-name": card.facts.name };
    for (const [id, text] of Object.entries(facts)) byId(id).placeholder = text ?? "not known";
    this.mark(this.store.refused);
  }

  /** @param {string} kind @param {string} text */
  say(kind, text) {
    this.combos.get(kind)?.set(text);
  }

  /** @param {HTMLInputElement} field @param {Scenario} scenario @param {Scenario} settled */
  fill(field, scenario, settled) {
    const key = field.dataset.key ?? "";
    const limit = field.dataset.limit;
    if (field.dataset.as === "flag") {
      field.checked = Boolean(valueOf(scenario, key));
      return;
    }
    let text = written(valueOf(scenario, key));
    if (limit) text = written(valueOf(scenario, `engine_args.${this.store.answer.figures.card.limits[limit].flag}`));
    else if (field.dataset.as === "pairs") text = lined(valueOf(scenario, key));
    else if (field.dataset.as === "price") text = written(Object.values(scenario.prices ?? {})[0]);
    else if (field.dataset.as === "degree" && text === "1") text = ""; // its placeholder says so
    else if (key === "gpu_count") text = written(scenario.gpu_count ?? settled.gpu_count);
    else if (key === "concurrency") text = written(scenario.concurrency ?? scenario.workload?.concurrency);
    else if (field.dataset.spec) text ||= written(valueOf(scenario, field.dataset.spec) ?? valueOf(scenario, `workload.lengths.${field.dataset.spec.slice(9)}`));
    if (field.value !== text) field.value = text;
  }

  /** Why there is no answer, at the field that is wrong; at none where it is about none. @param {import("./types").Failure["error"] | null} error */
  mark(error) {
    for (const field of this.form.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      field.closest(".field")?.querySelector(".err")?.remove();
      describe(field, `${field.id}-err`, false);
    }
    const field = error && this.fieldOf(error.field);
    if (!error || !field) return;
    const said = document.createElement("span");
    said.className = "err";
    said.id = `${field.id}-err`;
    said.textContent = `${capital(error.message)}. ${error.fix}`;
    field.closest(".field")?.append(said);
    field.setAttribute("aria-invalid", "true");
    describe(field, said.id, true);
    const folded = field.closest("details");
    if (folded) folded.open = true;
  }

  /** The field that asks a key of the Scenario. @param {string} key @returns {HTMLElement | null} */
  fieldOf(key) {
    const plain = key.replace(/^scenario\./, "");
    if (plain.startsWith("engine_args.")) {
      const flag = plain.slice("engine_args.".length);
      const limits = this.store.answer.figures.card.limits;
      const name = Object.keys(limits).find((limit) => limits[limit].flag === flag);
      return name ? this.form.querySelector(`[data-limit="${name}"]`) : byId("args");
    }
    const keys = [plain, plain.replace(/\.(\w+)$/, ".$1_tokens"), plain.replace(/^workload\.lengths\.(\w+).*/, "workload.$1_tokens"), plain.split(".").slice(0, 2).join("."), plain.split(".")[0]];
    for (const each of keys) {
      const found = this.form.querySelector(`[data-key="${CSS.escape(each).replace(/\\\./g, ".")}"], [data-spec="${each}"]`);
      if (found) return /** @type {HTMLElement} */ (found);
    }
    if (plain === "slo") return byId("slo");
    return plain === "workload.concurrency" ? byId("users") : null;
  }

  /** Go to the field of a key. @param {string} key */
  focus(key) {
    const field = this.fieldOf(key);
    if (!field) return;
    const folded = field.closest("details");
    if (folded) folded.open = true;
    field.focus();
    field.scrollIntoView({ block: "center" });
  }
}

/** @param {Element} field @param {string} id @param {boolean} on */
function describe(field, id, on) {
  const others = (field.getAttribute("aria-describedby") ?? "").split(" ").filter((one) => one && one !== id);
  const ids = on ? [...others, id] : others;
  if (ids.length) field.setAttribute("aria-describedby", ids.join(" "));
  else field.removeAttribute("aria-describedby");
}
