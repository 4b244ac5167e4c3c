/** One simulated run: its frames, and how things stand at any of them. Numbers are the server's. */

/** @typedef {import("./types").Frame} Frame */

export const KEPT = -1;
export const SHARED = -2;

export class Run {
  /** @param {any} head the stream's first line */
  constructor(head) {
    this.head = head;
    /** @type {Frame[]} */
    this.frames = [];
    /** Figures of the whole run, with explanations. @type {any} */
    this.answer = null;
    this.error = "";
    /** Frames put together so far. */
    this.at = -1;
    /** The owner of each block. @type {Int32Array} */
    this.owners = new Int32Array(head.blocks + 1);
    /** @type {Set<number>} */
    this.waiting = new Set();
    /** @type {Set<number>} */
    this.running = new Set();
    /** @type {Set<number>} */
    this.preempted = new Set();
  }

  /** When the last frame begins. */
  get end_s() {
    return this.frames.length ? this.frames[this.frames.length - 1].start_s : 0;
  }

  /** The last frame that has begun at a time. @param {number} time */
  index(time) {
    let low = 0;
    let high = this.frames.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle].start_s <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  /**
   * Put everything as it stands at a frame; gives the blocks that changed, or null for all of them.
   * @param {number} index @returns {Set<number> | null}
   */
  seek(index) {
    /** @type {Set<number> | null} */
    let changed = new Set();
    if (index < this.at) {
      this.owners.fill(0);
      for (const lane of [this.waiting, this.running, this.preempted]) lane.clear();
      this.at = -1;
      changed = null;
    }
    while (this.at < index) this.apply(this.frames[++this.at], changed);
    return changed;
  }

  /** @param {Frame} frame @param {Set<number> | null} changed */
  apply(frame, changed) {
    const { blocks = [] } = frame;
    for (let i = 0; i < blocks.length; i += 3) {
      for (let block = blocks[i]; block < blocks[i] + blocks[i + 1]; block++) {
        this.owners[block] = blocks[i + 2];
        changed?.add(block);
      }
    }
    for (const n of frame.came ?? []) this.waiting.add(n);
    for (const n of [...(frame.done ?? []), ...(frame.dropped ?? [])]) for (const lane of [this.waiting, this.running, this.preempted]) lane.delete(n);
    for (const n of frame.admitted ?? []) {
      this.waiting.delete(n);
      this.preempted.delete(n);
      this.running.add(n);
    }
    for (const n of frame.preempted ?? []) {
      this.running.delete(n);
      this.preempted.add(n);
    }
  }
}
