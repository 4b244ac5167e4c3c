/** Read, Plan and Present: three ways to use one page; and its contents. */

import { settle } from "./roving.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").View} View */

const root = document.documentElement;

/** The way of use in which an element is seen: the present one if it can be. @param {Element} element @param {View} now @returns {View} */
function seenIn(element, now) {
  const found = element.closest("[data-modes]")?.getAttribute("data-modes")?.split(" ") ?? [now];
  return /** @type {View} */ (found.includes(now) ? now : found[0]);
}

/** Go to an element: its view first, then to its place. @param {Store} store @param {HTMLElement} element */
export function goTo(store, element) {
  store.go(seenIn(element, store.view));
  element.tabIndex = -1;
  element.focus({ preventScroll: true });
  element.scrollIntoView();
}

/** @param {Store} store */
export function views(store) {
  const links = [...document.querySelectorAll(".modes a")];
  const contents = /** @type {HTMLDetailsElement} */ (document.getElementById("contents"));
  const show = () => {
    root.dataset.view = store.view;
    for (const link of links) {
      if (link.getAttribute("data-view") === store.view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    list(contents, store.view);
    settle();
  };
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest?.("a[data-view]");
    if (link) {
      event.preventDefault();
      store.go(/** @type {View} */ (link.getAttribute("data-view")));
      scrollTo(0, 0);
    } else if (!contents.contains(/** @type {Node} */ (event.target))) contents.open = false;
  });
  contents.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    contents.open = false;
    contents.querySelector("summary")?.focus();
  });
  // The address holds the question: a link within the page goes there and leaves it alone.
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest?.('a[href^="#"]:not(.term, [data-view])');
    const to = link && document.getElementById(/** @type {HTMLAnchorElement} */ (link).hash.slice(1));
    if (!to) return;
    event.preventDefault();
    contents.open = false;
    goTo(store, to);
  });
  store.addEventListener("view", show);
  show();
}

/** The headings of a view, as links. @param {HTMLElement} contents @param {View} view */
function list(contents, view) {
  const found = [...document.querySelectorAll("section[data-modes]")].filter((s) => s.getAttribute("data-modes")?.split(" ").includes(view));
  const items = found.flatMap((section) => {
    const title = section.querySelector("h2");
    if (!title || !section.id) return [];
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("a"), { href: `#${section.id}`, textContent: title.textContent }));
    return [item];
  });
  contents.querySelector("ol")?.replaceChildren(...items);
  contents.hidden = !items.length;
}
