/**
 * The figures in a notebook's cell (anywidget). Before this stands SOURCES: the figures' modules by path,
 * which become modules here, each once.
 */
/* global SOURCES */

/** @type {Map<string, string>} */
const urls = new Map();

/** The address of a module, its imports turned to addresses too. @param {string} path @returns {string} */
function address(path) {
  const known = urls.get(path);
  if (known) return known;
  const folder = path.replace(/[^/]*$/, "");
  // @ts-ignore: put before this module
  const text = /** @type {Record<string, string>} */ (SOURCES)[path].replace(/((?:from|import)\s*)"\.\/([^"]+)"/g, (/** @type {string} */ _, /** @type {string} */ how, /** @type {string} */ to) => `${how}"${address(folder + to)}"`);
  const made = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  urls.set(path, made);
  return made;
}

/** Elements that another cell has brought are there already. */
async function load() {
  if (customElements.get("kv-step")) return;
  for (const path of ["number.js", "memory-bar.js", "token-price.js", "step-bar.js"]) await import(address(path));
}

/** @param {{model: any, el: HTMLElement}} cell */
async function render({ model, el }) {
  await load();
  el.classList.add("kvroom");
  const { jpThemeLight: light } = document.body.dataset;
  if (light) el.dataset.theme = light === "true" ? "light" : "dark";
  const figures = model.get("elements").map((/** @type {string} */ name) => el.appendChild(document.createElement(name)));
  const show = () => figures.forEach((/** @type {any} */ figure) => (figure.answer = model.get("answer")));
  model.on("change:answer", show);
  el.addEventListener("turn", (event) => model.send(/** @type {CustomEvent} */ (event).detail));
  show();
  return () => model.off("change:answer", show);
}

export default { render };
