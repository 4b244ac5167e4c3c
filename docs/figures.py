"""Draw the pictures of README and docs from real Plans: ``python docs/figures.py`` writes docs/images.

The memory of the reference case, in one SVG for light pages and one for dark ones. A command is asked
for every number; only positions are computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from kvroom.answer.plan import Plan
from kvroom.ui.tour import ask, room
from kvroom.units import show_gb, show_tokens

IMAGES = Path(__file__).parent / "images"
FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
WIDTH, EDGE = 1000, 36
SPAN = WIDTH - 2 * EDGE


@dataclass(frozen=True)
class Theme:
    """The colours of one page."""

    name: str
    paper: str
    line: str
    ink: str
    soft: str
    weights: str
    on_weights: str
    cache: str
    on_cache: str


THEMES = (
    Theme("light", "#fbfaf6", "#d9d5cb", "#1c1b19", "#5d5a53", "#3d3d3d", "#fbfaf6", "#009e73", "#04130d"),
    Theme("dark", "#161614", "#3a3834", "#ecebe6", "#a7a49b", "#f0f0f0", "#161614", "#009e73", "#04130d"),
)  # fmt: skip


def text(x: float, y: float, words: str, *, fill: str, size: int = 15, more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" {more}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, *, more: str = "") -> str:
    """A rounded block."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" rx="3"'
        f' fill="{fill}" {more}/>'
    )


def cards_of(plan: Plan) -> int:
    """Bytes of all cards."""
    return plan.memory.gpu_bytes * plan.scenario.gpu_count


def bar(plan: Plan, t: Theme, y: float, height: float, *, numbered: bool) -> list[str]:
    """All cards as one bar: weights, a block a request, and what is too small for another."""
    scale = SPAN / cards_of(plan)
    each = plan.kv.bytes_per_request
    x = EDGE + plan.weights.bytes * scale
    made = [box(EDGE, y, x - EDGE - 2, height, t.weights)]
    for n in range(1, room(plan) + 1):
        made.append(box(x, y, each * scale - (2 if each * scale > 6 else 1), height, t.cache))
        if numbered:
            middle = f'text-anchor="middle" font-weight="600" data-request="{n}"'
            at = x + each * scale / 2 - 1
            made.append(text(at, y + height / 2 + 5, str(n), fill=t.on_cache, size=14, more=middle))
        x += each * scale
    end = EDGE + SPAN
    if end - x > 1:
        made.append(box(x, y, end - x, height, "url(#rest)", more=f'stroke="{t.line}"'))
    return made


def memory(t: Theme) -> str:
    """The reference case, and the same cards with one thing changed."""
    base = ask()
    scale = SPAN / cards_of(base)
    left = cards_of(base) - base.weights.bytes
    rest = left - room(base) * base.kv.bytes_per_request
    start = EDGE + base.weights.bytes * scale
    y, tall = 112, 92
    bold, right = 'font-weight="600"', 'text-anchor="end"'
    cards, context = base.scenario.gpu_count, show_tokens(base.scenario.context_tokens or 0)
    weights = f"Weights, {show_gb(base.weights.bytes)}"
    made = [
        text(EDGE, 46, f"Room for {room(base)}", fill=t.ink, size=27, more=bold),
        text(
            EDGE,
            72,
            f"Llama 3 70B in BF16 on {cards} cards of 80 GB, requests of {context} tokens",
            fill=t.soft,
        ),
        text(
            start,
            y - 9,
            f"{room(base)} requests × {show_gb(base.kv.bytes_per_request)} of cache",
            fill=t.soft,
            size=14,
        ),
        text(EDGE + SPAN, y - 9, f"{show_gb(rest)} left", fill=t.soft, size=14, more=right),
        *bar(base, t, y, tall, numbered=True),
        text(EDGE + 16, y + 42, weights, fill=t.on_weights, size=17, more=bold),
        text(EDGE + 16, y + 65, "load once, never move", fill=t.on_weights, size=15),
    ]  # fmt: skip
    for n in range(1, cards + 1):
        x = EDGE + n * base.memory.gpu_bytes * scale
        made.append(
            f'<path d="M{x - 0.5:.1f} {y + tall + 4} v12" stroke="{t.soft}" stroke-width="1"/>'
        )
        share = f"card {n}" if n < cards else f"card {n}: {show_gb(cards_of(base))} in all"
        made.append(text(x - 7, y + tall + 17, share, fill=t.soft, size=13, more=right))
    y += tall + 72
    made.append(
        text(EDGE, y - 14, "The same cards, one thing changed", fill=t.ink, size=17, more=bold)
    )
    changed = (
        ("FP8 cache", ask(kv_dtype="fp8")),
        ("8K tokens", ask(context_tokens=8192)),
        ("128K tokens", ask(context_tokens=131072)),
    )
    for name, plan in changed:
        made += bar(plan, t, y, 26, numbered=False)
        made.append(text(EDGE + 12, y + 18, name, fill=t.on_weights, size=14, more=bold))
        each = f"{room(plan)} requests × {show_gb(plan.kv.bytes_per_request)}"
        made.append(text(start - 12, y + 18, each, fill=t.on_weights, size=14, more=right))
        y += 35
    height = y + 10
    title = (
        f"Memory of {cards} cards of 80 GB: {show_gb(base.weights.bytes)} of weights, then "
        f"{room(base)} requests of {show_gb(base.kv.bytes_per_request)}, {show_gb(rest)} left. "
        f"With an FP8 cache {room(changed[0][1])}, at 8K tokens {room(changed[1][1])}, "
        f"at 128K {room(changed[2][1])}."
    )
    hatch = (
        '<defs><pattern id="rest" width="7" height="7" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate(45)"><path d="M0 0v7" stroke="{t.soft}" stroke-width="1.2"/>'
        "</pattern></defs>"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            hatch,
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="12"'
            f' fill="{t.paper}" stroke="{t.line}"/>',
            *made,
            "</svg>\n",
        )
    )


def draw() -> dict[str, str]:
    """Every picture by its file's name."""
    return {f"memory-{t.name}.svg": memory(t) for t in THEMES}


def main() -> None:
    """Write them."""
    IMAGES.mkdir(exist_ok=True)
    for name, svg in draw().items():
        (IMAGES / name).write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
