/** How figures are written: the same words and digits that the command line prints. */

// Made once: to make one takes longer than to use it.
const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 20 });
const FIXED = [0, 1, 2].map((n) => new Intl.NumberFormat("en-US", { minimumFractionDigits: n, maximumFractionDigits: n }));

/** @param {number} value @param {number} step @param {string[]} names */
function scaled(value, step, names) {
  let at = value;
  let name = names[0];
  for (name of names) {
    if (Math.abs(at) < step * 0.9995 || name === names[names.length - 1]) break;
    at /= step;
  }
  if (name === names[0] && Number.isInteger(value)) return `${grouped(value)} ${name}`;
  const digits = Math.abs(at) >= 1000 ? 0 : Math.abs(at) >= 100 ? 1 : 2;
  const text = FIXED[digits].format(Number(rounded(at, digits)));
  return `${text.includes(".") ? text.replace(/\.?0+$/, "") : text} ${name}`;
}

/** Half to even where the half is exact, as Python rounds. @param {number} value @param {number} digits */
function rounded(value, digits) {
  const scaled = value * 10 ** digits;
  const half = Number.isInteger(value * 2 ** (digits + 1)) && Math.abs(scaled % 1) === 0.5;
  return half ? ((2 * Math.round(scaled / 2)) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

/** @param {number} value */
export const grouped = (value) => GROUPED.format(value);
/** @param {number} value */
export const gib = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
/** @param {number} value */
export const gb = (value) => scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]);
/** Memory in the reader's unit: as cards are sold, or as engines print it. @param {number} value */
export const memory = (value) => (document.documentElement.dataset.units === "gib" ? gib(value) : gb(value));
/** Round values of a log axis of memory, in the reader's unit. @param {number[]} within least and most */
export const memoryTicks = ([least, most]) => {
  const step = document.documentElement.dataset.units === "gib" ? 8 : 10;
  return Array.from({ length: 24 }, (_, i) => step ** i).filter((value) => value >= least && value <= most);
};
/** @param {number} value */
export const short = (value) => scaled(value, 1000, ["", "K", "M", "B", "T", "P"]).replace(" ", "");

/** Requests: a decimal or two below a hundred, where they are not whole. @param {number} value */
const few = (value) => {
  const digits = Number.isInteger(value) || value >= 99.95 ? 0 : value < 0.095 ? 2 : 1;
  return FIXED[digits].format(Number(rounded(value, digits)));
};

/** Three figures. @param {number} value */
const three = (value) => String(Number(value.toPrecision(3)));

/** @param {number} value */
export function seconds(value) {
  if (value >= 100) return `${FIXED[1].format(value / 60)} min`;
  for (const [unit, size] of /** @type {[string, number][]} */ ([["s", 1], ["ms", 1e-3], ["µs", 1e-6]])) {
    if (value >= size) return `${three(value / size)} ${unit}`;
  }
  return `${three(value / 1e-9)} ns`;
}

/** A moment of simulated time. @param {number} value */
export const clock = (value) => `${FIXED[2].format(value)} s`;

/** Tokens: 32K or 1M where that is whole and short. @param {number} value */
export function tokens(value) {
  if (value >= 1048576 && value % 1048576 === 0) return `${grouped(value / 1048576)}M`;
  if (value >= 1024 && value < 10240000 && value % 1024 === 0) return `${value / 1024}K`;
  return grouped(value);
}

const NUMBERS = "None One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve Thirteen Fourteen Fifteen Sixteen Seventeen Eighteen Nineteen Twenty".split(" ");

/** @type {Record<string, (value: any) => string>} */
export const formats = {
  words: (v) => NUMBERS[v] ?? grouped(v),
  memory,
  gib,
  gb,
  rate: (v) => `${gb(v)}/s`,
  count: grouped,
  requests: few,
  change: (v) => (v < 0 ? `−${few(-v)}` : `+${few(v)}`),
  short,
  tokens: (v) => `${grouped(v)} tokens`,
  times: (v) => (v < 10 && v.toFixed(1) !== `${Math.round(v)}.0` ? v.toFixed(1) : grouped(Math.round(v))),
  usd: (v) => (v >= 1 ? `$${FIXED[2].format(v)}` : `$${three(v)}`),
  seconds,
  percent: (v) => `${FIXED[1].format(v * 100)} %`,
  rounded: (v) => FIXED[0].format(v),
  text: String,
};

/** A capital to begin a sentence with, unless its first word has its own, as vLLM. @param {string} text */
export const capital = (text) => (/^\S*[A-Z]/.test(text) ? text : text.slice(0, 1).toUpperCase() + text.slice(1));

/** The value at a dotted path of an answer. @param {any} answer @param {string} path */
export function at(answer, path) {
  return path.split(".").reduce((value, key) => (value == null ? undefined : value[key]), answer);
}

/** @param {any} answer @param {string} path @param {string} form */
export function said(answer, path, form) {
  const value = at(answer, path);
  return value == null ? "none" : formats[form](value);
}

/** What the question asks about, in words. @param {import("./types").Scenario} s */
export const cards = (s) => {
  const name = typeof s.gpu === "string" ? s.gpu : s.gpu.name;
  return s.gpu_count > 1 && !name.includes("+") ? `${s.gpu_count} × ${name}` : name;
};
/** @param {import("./types").Scenario} s */
export const modelName = (s) => (typeof s.model === "string" ? s.model : "your model");
