// Runs before the first paint: says that scripts run, which view is asked for, and whether the reader has yet to guess.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const view = /[#&]view=(read|plan|present)\b/.exec(location.hash)?.[1];
  root.dataset.view = view ?? (/[#&]s=/.test(location.hash) || location.search.length > 1 ? "plan" : "read");
  try {
    if (localStorage.getItem("kvroom-units") === "gib") root.dataset.units = "gib";
    const theme = localStorage.getItem("kvroom-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    const asked = location.hash.startsWith("#s=") || location.search.length > 1;
    if (!asked && !sessionStorage.getItem("kvroom-guessed")) root.classList.add("guessing", "untouched");
  } catch {
    // Storage may be closed to us; the page then starts plain.
  }
})();
