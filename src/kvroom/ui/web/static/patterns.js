/** The second code of every colour: hatches and dots. The server puts this very text into the page. */
const PATTERNS = `<svg id="patterns" width="0" height="0" aria-hidden="true" focusable="false"><defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch-line" d="M0 0V7" stroke-width="1.4"/></pattern>
<pattern id="hatch-own" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="own-line" d="M0 0V6" stroke-width="4"/></pattern>
<pattern id="hatch-over" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="over-line" d="M0 0V9" stroke-width="6"/></pattern>
<pattern id="hatch-wait" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="paper-fill" d="M0 0H8V8H0Z"/><path class="wait-line" d="M2 0V8" stroke-width="4"/></pattern>
<pattern id="bars-window" width="5" height="5" patternUnits="userSpaceOnUse"><path class="window-fill" d="M0 0H5V5H0Z"/><path class="window-line" d="M0 1H5" stroke-width="1.2"/></pattern>
<pattern id="lines-cross" width="5" height="5" patternUnits="userSpaceOnUse"><path class="cross-fill" d="M0 0H5V5H0Z"/><path class="cross-line" d="M1 0V5" stroke-width="1.4"/></pattern>
<pattern id="hatch-latent" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="latent-line" d="M0 0V5" stroke-width="2.5"/></pattern>
<pattern id="hatch-indexer" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="latent-line" d="M0 0V5" stroke-width="1.2"/></pattern>
<pattern id="bars-shared" width="5" height="5" patternUnits="userSpaceOnUse"><path class="shared-fill" d="M0 0H5V5H0Z"/><path class="shared-line" d="M0 1H5" stroke-width="1.2"/></pattern>
<pattern id="dots-state" width="6" height="6" patternUnits="userSpaceOnUse"><path class="state-fill" d="M0 0H6V6H0Z"/><circle class="state-dot" cx="2" cy="2" r="1.2"/></pattern>
<pattern id="hatch-thrown" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="thrown-fill" d="M0 0H6V6H0Z"/><path class="thrown-line" d="M1 0V6" stroke-width="1.6"/></pattern>
</defs></svg>`;

/** Where a figure stands in a page that has none of them. */
export function ensurePatterns() {
  if (document.getElementById("patterns")) return;
  const holder = document.createElement("div");
  holder.innerHTML = PATTERNS;
  document.body.append(...holder.childNodes);
}
