/** The replay as a slide: one run of the page's question, played block by block once the slide is turned to. */
import "./replay.js";
import { lines } from "./ask.js";
import { Run } from "./replay-run.js";

/** So long a run takes on a slide, whatever it simulates. */
const LASTS_MS = 24_000;

/**
 * Ask for a run and play it in `figure`; who wants no motion sees the moment at which most wait.
 * @param {any} figure @param {import("./types").Scenario} scenario @param {AbortSignal} signal ends the asking and the playing
 */
export async function playSlide(figure, scenario, signal) {
  /** @type {Run | null} */
  let run = null;
  let worst = 0;
  for await (const told of lines("api/simulate", { scenario, replay: { seed: 0 }, frames: true }, signal)) {
    if (told.kind === "error") return;
    if (told.kind === "asked") run = new Run(told);
    else if (run && told.kind === "frames") run.frames.push(...told.frames);
    else if (run && told.kind === "answer") [run.answer, worst] = [told.answer, told.worst_s ?? 0];
  }
  if (!run?.answer || signal.aborted) return;
  figure.runs = [run];
  figure.answer = run.answer;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    figure.time = worst;
    return;
  }
  const from = performance.now();
  const tick = () => {
    if (signal.aborted) return;
    figure.time = Math.min(1, (performance.now() - from) / LASTS_MS) * figure.end_s;
    if (figure.time < figure.end_s) requestAnimationFrame(tick);
  };
  tick();
}
