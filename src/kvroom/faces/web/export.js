/** Pictures and tables as files. Nothing leaves the browser but through its own downloads. */

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "font-variant-numeric", "display", "fill-opacity", "paint-order"];

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * The picture alone, with its styles written into it.
 * @param {SVGSVGElement} svg @param {string} sentence @param {string} link
 */
export function standalone(svg, sentence, link) {
  const { width, height } = svg.getBoundingClientRect();
  const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
  const from = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      // Patterns live in the page; what they fill is told by label and outline.
      if (value) element.setAttribute(name, value.replace(/^url\("?[^)]*#([\w-]+)"?\).*$/, "url(#$1)"));
    }
    element.removeAttribute("class");
  });
  const make = (/** @type {string} */ tag, /** @type {string} */ text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    element.textContent = text;
    return element;
  };
  const patterns = document.getElementById("patterns")?.querySelector("defs")?.cloneNode(true);
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  copy.prepend(make("title", sentence), make("desc", `Made by kvroom. ${link}`), ...(patterns ? [patterns] : []), paper);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(Math.round(width)));
  copy.setAttribute("height", String(Math.round(height)));
  copy.setAttribute("viewBox", `0 0 ${Math.round(width)} ${Math.round(height)}`);
  copy.removeAttribute("class");
  return new XMLSerializer().serializeToString(copy);
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
