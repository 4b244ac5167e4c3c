/**
 * Numbers, explained words, words that set the figure, choices of one kind and buttons of one box: those of one
 * paragraph of the story, one box or else one section are one stop of Tab, and the arrow keys go from one to the
 * next. What scrolls within itself is a stop while it has something to scroll.
 */
const ITEMS = [
  "kv-n, a.term, button.set",
  '.text a[href^="#"]:not(.button), header.top [data-view]',
  "#replay .transport button, #paste-read, #any-file, #plan .warnings button",
  "kv-levers .chips input, kv-levers .ranking :is(.pull input, button, summary)",
  "kv-take :is(button, summary)",
].join(", ");
const HOLDERS = ".chips, .ranking, .beat, .transport, .filings, kv-take, header.top, section";
const SCROLLERS = '.table[role="region"], pre[role="region"]';
/** @param {Element} item */
const holder = (item) => item.closest(HOLDERS) ?? item.closest("figure, p, ul, dl, table");
/** @type {Record<string, number>} */
const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The items of one holder that are shown. @param {Element | null} group @returns {HTMLElement[]} */
const shown = (group) => [.../** @type {NodeListOf<HTMLElement>} */ ((group ?? document.createElement("p")).querySelectorAll(ITEMS))].filter((one) => holder(one) === group && one.checkVisibility() && !one.matches(":disabled"));

/** In Present the arrows turn slides, so that the header's links are stops of their own. @param {Element | null} group */
const apart = (group) => group?.localName === "header" && document.documentElement.dataset.view === "present";

/** What is shown is asked of the browser once the hand rests: that takes a layout of the whole page. */
const REST_MS = 250;
let resting = 0;

/** Soon, of each group one is a stop: that which was, or the first. */
export function settle() {
  clearTimeout(resting);
  resting = setTimeout(() => {
    for (const group of new Set([...document.querySelectorAll(ITEMS)].map(holder))) {
      const items = shown(group);
      const stop = items.find((item) => item === document.activeElement) ?? items[0];
      for (const item of items) item.tabIndex = item === stop || apart(group) ? 0 : -1;
    }
    const boxes = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(SCROLLERS));
    const scroll = [...boxes].map((box) => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight);
    boxes.forEach((box, i) => (box.tabIndex = scroll[i] ? 0 : -1));
  }, REST_MS);
}
addEventListener("resize", settle);

document.addEventListener("keydown", (event) => {
  const item = /** @type {HTMLElement} */ (event.target);
  if (!(event.key in MOVES) || !item.matches?.(ITEMS)) return;
  const group = holder(item);
  const items = shown(group);
  const next = items[items.indexOf(item) + MOVES[event.key]];
  if (!next || apart(group)) return;
  event.preventDefault();
  for (const one of items) one.tabIndex = one === next ? 0 : -1;
  next.focus();
});
