/** Words that the glossary explains: a click shows what one means where it stands. */
import { show } from "./number.js";

/** @param {string} tag @param {string} text @param {string} [name] */
function make(tag, text, name) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest?.("a.term");
  if (!(link instanceof HTMLAnchorElement)) return;
  const word = document.getElementById(link.hash.slice(1));
  if (!word) return;
  event.preventDefault(); // the address holds the question
  const all = make("button", "All words", "plain");
  show(link, "What a word means", [make("h3", word.textContent ?? ""), make("p", word.nextElementSibling?.textContent ?? "", "meaning"), all]);
  all.addEventListener("click", () => {
    document.getElementById("explain")?.hidePopover();
    word.scrollIntoView({ block: "center" });
    word.focus({ preventScroll: true });
  });
});
