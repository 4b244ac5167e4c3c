/** Blocks glide for an act that is one step; under a hand that slides they follow at once. */
const root = document.documentElement;
let still = 0;

export function glide() {
  root.classList.add("gliding");
  clearTimeout(still);
  still = setTimeout(() => root.classList.remove("gliding"), 600);
}
