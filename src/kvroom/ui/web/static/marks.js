/** Paints a drawing (marks by key) into an svg element, keeping what stays so that it can move. */

const SPACE = "http://www.w3.org/2000/svg";
const OWN = new Set(["tag", "key", "text", "title"]);

/** @param {SVGSVGElement} svg @param {import("./types").Drawing} drawing */
export function paint(svg, drawing) {
  const before = new Map([...svg.children].map((child) => [child.getAttribute("data-key"), child]));
  const now = drawing.marks.map((mark) => {
    const old = before.get(mark.key);
    const element = old && old.localName === mark.tag ? old : document.createElementNS(SPACE, mark.tag);
    if (element !== old) element.setAttribute("data-key", mark.key);
    for (const { name } of [...element.attributes]) {
      if (name !== "data-key" && !(name in mark)) element.removeAttribute(name);
    }
    for (const [name, value] of Object.entries(mark)) {
      if (!OWN.has(name) && element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
    }
    if (mark.tag === "text") {
      if (element.textContent !== mark.text) element.textContent = mark.text ?? "";
    } else if (mark.title) {
      const title = element.firstElementChild ?? element.appendChild(document.createElementNS(SPACE, "title"));
      if (title.textContent !== mark.title) title.textContent = mark.title;
    }
    return element;
  });
  svg.replaceChildren(...now);
  svg.setAttribute("height", String(drawing.height));
  svg.setAttribute("aria-label", drawing.sentence);
}
