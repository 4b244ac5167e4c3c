/**
 * What the page has under way, requests and timers: the root element says how many (`data-pending`), so that
 * whoever reads the page can wait until it is at rest.
 */
const root = document.documentElement;
let count = 0;

/** @param {number} more */
function add(more) {
  count += more;
  root.dataset.pending = String(count);
}

/** Count a promise until it is over. @template T @param {Promise<T>} promise @returns {Promise<T>} */
export function pending(promise) {
  add(1);
  return promise.finally(() => add(-1));
}

/** A timer that counts until what it starts is over. */
export class Timer {
  constructor() {
    this.id = 0;
  }

  get waiting() {
    return this.id !== 0;
  }

  /** Instead of what it waits for. @param {() => unknown} act @param {number} ms */
  set(act, ms) {
    this.clear();
    add(1);
    this.id = setTimeout(async () => {
      this.id = 0;
      try {
        await act();
      } finally {
        add(-1);
      }
    }, ms);
  }

  clear() {
    if (!this.waiting) return;
    clearTimeout(this.id);
    this.id = 0;
    add(-1);
  }
}
