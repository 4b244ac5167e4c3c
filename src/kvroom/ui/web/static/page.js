/** Wires the page: controls change the question, the answer moves the figures. */
import "./memory-bar.js";
import "./step-bar.js";
import "./take-away.js";
import "./terms.js";
import "./token-price.js";
import { unread } from "./ask.js";
import { glide } from "./glide.js";
import { tell } from "./number.js";
import { Timer, pending } from "./pending.js";
import { present } from "./present.js";
import { plan } from "./plan.js";
import { read } from "./read.js";
import { sections } from "./sections.js";
import { Store, asks } from "./store.js";
import { views } from "./views.js";

const root = document.documentElement;
/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const start = JSON.parse(byId("start").textContent);
const store = new Store(start);
store.said = [...new Set([...document.querySelectorAll("kv-n[of]")].map((n) => n.getAttribute("figure") ?? ""))];

// ---- how the reader wants it ----

/** Keep a choice for later visits. @param {string} name @param {string} value */
function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // then it holds for this visit
  }
}

const theme = byId("theme");
theme.value = root.dataset.theme ?? "";
theme.addEventListener("change", () => {
  if (theme.value) root.dataset.theme = theme.value;
  else delete root.dataset.theme;
  keep("kvroom-theme", theme.value);
});

for (const input of document.querySelectorAll('input[name="units"]')) {
  const choice = /** @type {HTMLInputElement} */ (input);
  choice.checked = choice.value === (root.dataset.units ?? "gb");
  choice.addEventListener("change", () => {
    root.dataset.units = choice.value;
    keep("kvroom-units", choice.value);
    recount();
  });
}

/** Every sentence is asked anew, in the unit that is now chosen. */
function recount() {
  store.forget();
  pending(fromAddress());
}

// ---- answers ----

/** What is on the screen moves at once; the rest when the hand rests. */
const FIGURES = ["price-figure", "compare", "step-curve", "takeaway"].map(byId);
const UNSEEN_MS = 300;
/** @type {Set<any>} */
const seen = new Set();
const later = new Timer();
const looking = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
  }
});
for (const element of FIGURES) looking.observe(element);

const live = byId("live");
let spoken = "";
let speaking = 0;
/** At most once a second. @param {string} text */
function speak(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    if (text !== spoken) live.textContent = spoken = text;
  }, 1000);
}

function show() {
  const { answer, answers } = store;
  byId("main").dataset.is = answer.figures.traits.join(" ");
  root.classList.toggle("stale", store.error !== "");
  tell(answers);
  for (const element of FIGURES) if (seen.has(element)) element.answer = answer;
  later.set(() => FIGURES.forEach((element) => (element.answer = answer)), UNSEEN_MS);
  byId("story-fault").hidden = !store.error;
  byId("story-fault").firstElementChild.textContent = store.error;
  if (store.error || !root.classList.contains("guessing")) speak(store.error || answer.verdict.sentence);
}

store.addEventListener("answer", show);
store.addEventListener("neighbours", () => {
  tell(store.answers);
  byId("compare").answers = store.compared;
});
store.addEventListener("address", () => byId("takeaway").requestUpdate());

byId("ask-again").addEventListener("click", () => store.ask());

show();
const story = read(store);
const instrument = plan(store, { glide, speak, reveal: story.reveal, presets: start.presets });

async function fromAddress() {
  store.arrive();
  try {
    const asked = (await instrument.from(location.hash)) ?? (asks(location.search) ? await unread(start.answer.take_away.link) : null);
    if (asked) story.reveal();
    store.replace(asked ?? start.scenario, false);
  } catch (error) {
    instrument.fault(/** @type {Error} */ (error).message);
  }
}
addEventListener("popstate", () => pending(fromAddress()));

views(store);
present(store);
if (start.error) instrument.fault(start.error);
if (root.dataset.units === "gib") recount();
else pending(/[#&]s=/.test(location.hash) || (asks(location.search) && !start.error) ? fromAddress() : store.askNeighbours());
sections(store, { speak, replays: start.replays, machines: start.catalogue.gpus, other: () => instrument.beside.other?.scenario ?? null });
root.classList.add("ready");
