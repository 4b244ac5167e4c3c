/**
 * Runs `pack.py` in the Python that the page will run: node pack.mjs PYODIDE IN OUT. PYODIDE is npm's folder of
 * that name, IN a zip of sources, OUT a folder for what comes of it and of the standard library.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodide, sources, out] = process.argv.slice(2);
const folder = resolve(pyodide);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: folder, packageBaseUrl: folder, env: { PYTHONNODEBUGRANGES: "1" } });
python.FS.writeFile("/sources.zip", readFileSync(sources));
python.FS.writeFile("/library.zip", readFileSync(join(folder, "python_stdlib.zip")));
python.runPython(readFileSync(new URL("pack.py", import.meta.url), "utf8"));
for (const name of ["library", "kvroom"]) writeFileSync(join(out, `${name}.zip`), python.FS.readFile(`/${name}-packed.zip`));
process.exit(0);
