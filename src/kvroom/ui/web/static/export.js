/** Pictures and tables as files. Nothing leaves the browser but through its own downloads. */

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "font-variant-numeric", "display", "fill-opacity", "paint-order"];

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const SPACE = "http://www.w3.org/2000/svg";
const MARGIN = 16;

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
function make(tag, attributes, text = "") {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.textContent = text;
  return element;
}

/** Writes an element's look into a copy of it. @param {Element} from @param {Element} copy */
function dress(from, copy) {
  const style = getComputedStyle(from);
  for (const name of STYLES) {
    const value = style.getPropertyValue(name);
    if (value) copy.setAttribute(name, value.replace(/^url\("?[^)]*#([\w-]+)"?\).*$/, "url(#$1)"));
  }
  copy.removeAttribute("class");
  [...from.children].forEach((child, i) => dress(child, copy.children[i]));
}

/** @template {Element} T @param {T} element */
function dressed(element) {
  const copy = /** @type {T} */ (element.cloneNode(true));
  dress(element, copy);
  return copy;
}

/**
 * Drawings one below the other as one picture, with their styles and patterns written into it.
 * @param {SVGSVGElement[]} drawings @param {string} sentence @param {string} link
 */
export function standalone(drawings, sentence, link) {
  const boxes = drawings.map((svg) => svg.getBoundingClientRect());
  const width = Math.round(Math.max(0, ...boxes.map((box) => box.width)) + 2 * MARGIN);
  let height = MARGIN;
  const placed = drawings.map((svg, i) => {
    const copy = dressed(svg);
    for (const [name, value] of Object.entries({ x: MARGIN, y: height, width: boxes[i].width, height: boxes[i].height, overflow: "visible" })) copy.setAttribute(name, String(value));
    height += Math.round(boxes[i].height) + MARGIN;
    return copy;
  });
  const picture = make("svg", { xmlns: SPACE, width, height, viewBox: `0 0 ${width} ${height}` });
  const patterns = document.getElementById("patterns")?.querySelector("defs");
  const paper = make("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  picture.append(make("title", {}, sentence), make("desc", {}, `Made by kvroom. ${link}`), ...(patterns ? [dressed(patterns)] : []), paper, ...placed);
  return new XMLSerializer().serializeToString(picture);
}

/** @param {string} source @returns {Promise<Blob>} */
export async function toPng(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture")))));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {import("./types").Table} table */
export function toCsv({ head, rows }) {
  const cell = (/** @type {string | number} */ value) => {
    const text = typeof value === "string" && /^[=+\-@]/.test(value) ? `'${value}` : String(value);
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
