/**
 * Numbers, explained words and words that set the figure: those of one paragraph or figure are one stop of
 * Tab, and the arrow keys go from one to the next.
 */
const ITEMS = "kv-n, a.term, button.set";
/** @param {Element} item */
const holder = (item) => item.closest("figure, .beat") ?? item.closest("p, ul, dl, table");
/** @type {Record<string, number>} */
const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** @param {Element} item @returns {HTMLElement[]} */
const groupOf = (item) => [.../** @type {NodeListOf<HTMLElement>} */ ((holder(item) ?? item).querySelectorAll(ITEMS))].filter((one) => one.checkVisibility());

/** What is shown is asked of the browser once the hand rests: that takes a layout of the whole page. */
const REST_MS = 120;
let resting = 0;

/** Soon, of each group one is a stop: that which was, or the first. */
export function settle() {
  clearTimeout(resting);
  resting = setTimeout(() => {
    const groups = new Set([...document.querySelectorAll(ITEMS)].map(holder));
    for (const group of groups) {
      const items = group ? [.../** @type {NodeListOf<HTMLElement>} */ (group.querySelectorAll(ITEMS))].filter((one) => holder(one) === group && one.checkVisibility()) : [];
      const stop = items.find((item) => item === document.activeElement) ?? items[0];
      for (const item of items) item.tabIndex = item === stop ? 0 : -1;
    }
  }, REST_MS);
}

document.addEventListener("keydown", (event) => {
  const item = /** @type {Element} */ (event.target);
  if (!(event.key in MOVES) || !item.matches?.(ITEMS)) return;
  const group = groupOf(item);
  const next = group[group.indexOf(/** @type {HTMLElement} */ (item)) + MOVES[event.key]];
  if (!next) return;
  event.preventDefault();
  for (const one of group) one.tabIndex = one === next ? 0 : -1;
  next.focus();
});
