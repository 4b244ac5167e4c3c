/** Rows of bars that lead from one number to another: what the levers and the staircase are drawn with. */
import { svg } from "./vendor/lit.js";
import { scaleLinear, scaleLog } from "./vendor/d3.js";

/**
 * @typedef {object} Row
 * @property {string} key
 * @property {string} label
 * @property {number} from where the bar begins; 0 of a level
 * @property {number} to where it ends
 * @property {string} kind its look: a class of figures.css
 * @property {string} value the number as written at the right
 * @property {string} [note] more, where there is width for it
 * @property {number} [low] ends of its band, on the same scale
 * @property {number} [high]
 * @property {boolean} [level] a whole bar from nothing
 * @property {boolean} [off] named, not drawn
 */

const ROW = 36;
const SLIM_ROW = 50;
const BAR = 22;
const NOTE = 264;

/** Do these rows need a log scale? @param {Row[]} rows @param {number} far beyond so many times */
export const doubling = (rows, far) => {
  const ends = rows.filter((row) => !row.off).flatMap((row) => [row.from, row.to]).filter((value) => value > 0);
  return Math.max(...ends) / Math.min(...ends) > far;
};

/** @param {Row[]} rows @param {number} width @param {number} far @param {number} [row] how high a row is */
export function ladder(rows, width, far, row = ROW) {
  const slim = width < 620;
  const tall = slim ? SLIM_ROW : row;
  const noted = !slim && rows.some((row) => row.note);
  const left = slim ? 0 : Math.min(260, width * 0.27);
  const numbers = width - (noted ? NOTE : 0);
  const right = slim ? width - 2 : numbers - 78;
  const drawn = rows.filter((row) => !row.off);
  const most = Math.max(1e-9, ...drawn.flatMap((row) => [row.from, row.to, row.high ?? 0]));
  const least = Math.min(...drawn.flatMap((row) => [row.from, row.to]).filter((value) => value > 0), most);
  const wide = doubling(rows, far);
  const scale = wide ? scaleLog([least / 2, most], [left, right]) : scaleLinear([0, most], [left, right]);
  const x = (/** @type {number} */ value) => scale(wide ? Math.max(value, least / 2) : Math.max(0, value));
  return { height: rows.length * tall + 2, marks: rows.map((row, i) => line(row, rows[i + 1], i * tall, { x, slim, tall, left, numbers, right, wide })) };
}

/** @param {Row} row @param {Row | undefined} next @param {number} y @param {any} at */
function line(row, next, y, { x, slim, tall, left, numbers, right, wide }) {
  const [start, end] = [x(Math.min(row.from, row.to)), x(Math.max(row.from, row.to))];
  const top = y + (slim ? 20 : (tall - BAR) / 2);
  const text = y + (slim ? 14 : tall / 2 + 5);
  const band = row.low != null && row.high != null && !row.off;
  const middle = top + BAR / 2;
  return svg`<g>
    ${!row.off ? svg`<line class="grid" x1=${left} x2=${right} y1=${top + BAR} y2=${top + BAR}/>` : ""}
    <text class=${row.off ? "soft" : row.level ? "strong" : ""} x="0" y=${text}>${row.label}</text>
    ${row.off ? "" : body(row, start, end, top, wide)}
    ${band ? svg`<path class="band" d=${`M${x(row.low)} ${middle - 5}V${middle + 5}M${x(row.low)} ${middle}H${x(row.high)}M${x(row.high)} ${middle - 5}V${middle + 5}`}/>` : ""}
    ${!slim && next && !next.off && !row.off ? svg`<line class="joint" x1=${x(next.level ? row.to : next.from)} x2=${x(next.level ? row.to : next.from)} y1=${top + BAR} y2=${top + tall}/>` : ""}
    <text class=${row.off ? "soft" : row.level ? "strong" : ""} x=${numbers} y=${text} text-anchor="end">${row.value}</text>
    ${!slim && row.note ? svg`<text class="soft" x=${numbers + 14} y=${text}>${row.note}</text>` : ""}
  </g>`;
}

/** A bar from zero; on a log scale, where length says nothing, a dot for a level and a line for a step. @param {Row} row @param {number} start @param {number} end @param {number} top @param {boolean} wide */
function body(row, start, end, top, wide) {
  const title = svg`<title>${row.label}: ${row.value}</title>`;
  if (wide && row.level) return svg`<circle class=${`beam ${row.kind}`} cx=${end} cy=${top + BAR / 2} r="8">${title}</circle>`;
  const tall = wide ? 8 : BAR;
  return svg`<rect class=${`beam ${row.kind}`} x=${start} y=${top + (BAR - tall) / 2} width=${Math.max(1.5, end - start)} height=${tall}>${title}</rect>`;
}
