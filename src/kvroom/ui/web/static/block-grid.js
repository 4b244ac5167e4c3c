/** The pool, block by block: an svg that is repainted only where something changed. */
import { KEPT, SHARED } from "./replay-run.js";

const SPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 230;
const [SMALLEST, LARGEST, NUMBERED] = [4, 20, 15];
/** Tints of green that requests take turns with. */
export const TINTS = 8;

/** How a block is drawn. @param {number} owner */
export const look = (owner) => (owner > 0 ? `held t${owner % TINTS}` : owner === SHARED ? "shared-block" : owner === KEPT ? "left" : "free");

export class BlockGrid {
  constructor() {
    this.svg = document.createElementNS(SPACE, "svg");
    this.svg.setAttribute("class", "grid-of-blocks");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("width", "100%");
    /** @type {SVGRectElement[]} */
    this.cells = [];
    this.numbers = document.createElementNS(SPACE, "g");
    this.size = 0;
    this.columns = 1;
    this.width = 0;
    this.followed = 0;
  }

  /** Lay out so many blocks. @param {number} total @param {number} width */
  lay(total, width) {
    if (this.cells.length === total && this.width === width) return false;
    this.width = width;
    let size = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.sqrt((width * HEIGHT) / total))));
    while (size > SMALLEST && Math.ceil(total / Math.floor(width / size)) * size > HEIGHT) size--;
    this.size = size;
    this.columns = Math.floor(width / size);
    while (this.cells.length > total) this.cells.pop();
    while (this.cells.length < total) this.cells.push(document.createElementNS(SPACE, "rect"));
    const gap = size > 6 ? 1.5 : 1;
    for (const [i, cell] of this.cells.entries()) {
      cell.setAttribute("x", String((i % this.columns) * size));
      cell.setAttribute("y", String(Math.floor(i / this.columns) * size));
      cell.setAttribute("width", String(size - gap));
      cell.setAttribute("height", String(size - gap));
    }
    this.svg.replaceChildren(...this.cells, this.numbers);
    this.svg.setAttribute("height", String(Math.ceil(total / this.columns) * size));
    return true;
  }

  /**
   * Paint the blocks that changed (null: all).
   * @param {Int32Array} owners @param {Set<number> | null} changed @param {number} followed
   */
  paint(owners, changed, followed) {
    const all = changed === null || followed !== this.followed;
    this.followed = followed;
    const blocks = all ? this.cells.keys() : [...changed].map((block) => block - 1);
    for (const i of blocks) {
      const owner = owners[i + 1];
      const name = followed && owner === followed ? `${look(owner)} mine` : look(owner);
      if (this.cells[i].getAttribute("class") !== name) this.cells[i].setAttribute("class", name);
    }
    if (this.size >= NUMBERED) this.number(owners);
    else this.numbers.replaceChildren();
  }

  /** Each request's number on the first of its blocks. @param {Int32Array} owners */
  number(owners) {
    /** @type {Map<number, number>} */
    const first = new Map();
    owners.forEach((owner, block) => owner > 0 && !first.has(owner) && first.set(owner, block - 1));
    const texts = [...first].map(([owner, i], n) => {
      const text = this.numbers.children[n] ?? document.createElementNS(SPACE, "text");
      text.setAttribute("class", "on-cache");
      text.setAttribute("x", String((i % this.columns) * this.size + this.size / 2 - 0.75));
      text.setAttribute("y", String(Math.floor(i / this.columns) * this.size + this.size / 2 + 2.5));
      text.textContent = String(owner);
      return text;
    });
    this.numbers.replaceChildren(...texts);
  }

  /** The block under a point of the picture. @param {number} x @param {number} y */
  at(x, y) {
    const column = Math.floor(x / this.size);
    return column < this.columns ? Math.floor(y / this.size) * this.columns + column + 1 : 0;
  }
}
