"""A model's name as people write it → which model it is, and how its weights are stored.

Owners, paths, dates, quantisers and widths stand around the model's own name: ``RedHatAI/Qwen3-14B-FP8-
dynamic``, ``/models/openai--gpt-oss-120b``, ``hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M``. They are taken off
from the ends until what is left is a name that ``is_known``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kvroom.records import dataclass

_HOSTS = re.compile(
    r"^(?:hf://|https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|modelscope\.cn/models)/|^hf://"
)


def is_page(address: str) -> bool:
    """Whether an address is a model's page of a hub."""
    return _HOSTS.match(address) is not None


_CACHED = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_SNAPSHOT = re.compile(
    r"^(snapshots|main|refs|blobs|[0-9a-f]{32,64}|model|models|weights|checkpoints?|hf|gguf)$"
)
_PARTS_OF_FILE = re.compile(r"(?:[-.]\d{5}-of-\d{5})?\.(?:gguf|safetensors|bin)$", re.IGNORECASE)

_GGUF = r"(?:ud-)?(?:i?q\d(?:_\d|_k)?(?:_(?:xxs|xs|s|m|l|xl|nl))?|tq[12]_0)"
_WIDTH = re.compile(
    rf"{_GGUF}|(?:nv|mx)fp[48](?:a16)?|fp[48](?:_?e\dm\d)?|int[2348]|bf16|fp16|f16|fp32|bfloat16|w\da\d+(?:kv\d+)?(?:fp8)?"
    r"|[2348]-?bits?|awq|gptq|bnb|nf4|exl[23]|hqq|aqlm|autoround|\d(?:\.\d+)?bpw|q[48]"
)
_ABOUT_WIDTH = re.compile(
    r"dynamic|block|static|tensor|channel|pertensor|per|token|group|g\d+|gs\d+|\d+g|quantized|unquantized|quant|marlin|gguf|mlx|dwq|mixed|symmetric|sym|asym"
    r"|auto|round|unsloth|native|online|kv|kvcache|imatrix|i1|compressed|tensors|ct|modelopt|quark|smooth|smoothquant"
)
_VARIANT = re.compile(
    r"instruct|it|chat|base|hf|pt|sft|dpo|rl|thinking|reasoning|preview|beta|abliterated|uncensored|heretic|merged|text|only"
    r"|v\d(?:\.\d)?|\d{4}|20\d{2}|20\d{6}|\d{6,8}|latest|qat|mtp|nomtp|original|release"
)
_PREFIX = re.compile(
    r"meta|nvidia|unsloth|huihui|openai|google|deepseek-ai|mistralai|zai-org|community|microsoft|ibm|model|models"
)
_SAME_MODEL = re.compile(r"instruct|it|chat|base|hf|pt|thinking|latest|text|original|v0\.1|\d{4}")
"""Words that change neither the shape nor what is worth saying."""

_SCHEMES = frozenset({"dynamic", "block", "static", "tensor", "channel"})
"""How a width's scales are taken, which tells one FP8 checkpoint from another."""

_BLOCK_SCALED = (
    "qwen",
    "deepseek-ai",
    "zai-org",
    "minimaxai",
    "moonshotai",
    "stepfun-ai",
    "xiaomimimo",
)
"""Owners whose FP8 checkpoints have a scale for each 128 × 128 block, as their configs say."""
QAT, QAT_WIDTH = "qat", "q4_0"
"""Checkpoints of quantisation-aware training, and the type they are trained for and handed out in where no
width stands beside the word (google/gemma-3-…-it-qat-q4_0-gguf)."""
UNQUANTIZED = "unquantized"
"""Their 16-bit checkpoints, whatever width they are trained for (…-qat-q4_0-unquantized)."""
FP8_CACHE = "nvidia"
"""The owner whose FP8 checkpoints ask for an FP8 cache (``kv_cache_quant_algo``): vLLM counted 20.0 GiB for
131,072 tokens of nvidia/Llama-3.1-70B-Instruct-FP8 (ai-dynamo/dynamo#10104)."""


@dataclass(frozen=True, slots=True)
class NameReading:
    """The known ``name``, the ``weight_dtype`` that the words around it say (None: none), and how both
    were read, as a sentence's end (None: nothing but the name itself was there). ``cache_dtype`` is the
    width of the cache that such checkpoints ask for."""

    name: str
    weight_dtype: str | None
    words: str | None
    cache_dtype: str | None = None


def read(text: str, is_known: Callable[[str], str | None]) -> NameReading | None:
    """What ``text`` names; ``is_known`` gives a spelling's own name. None where nothing is known by it.

    >>> read("Qwen3-14B-FP8-dynamic", {"qwen3-14b": "qwen3-14b"}.get).weight_dtype
    'fp8'
    """
    if len(text) > 1000:
        return None
    exactly = is_known(text)
    if exactly is not None:
        return NameReading(exactly, None, None)
    for owner, name in _candidates(text):
        found = _strip(name, is_known)
        if found is None and owner:
            found = _strip(f"{owner}-{name}", is_known)
        if found is not None:
            known, dropped = found
            width = _width(dropped, owner, known)
            if all(_SAME_MODEL.fullmatch(word) for word in dropped):
                return NameReading(known, None, None)
            cache = "fp8" if owner == FP8_CACHE and (width or "").startswith("fp8") else None
            words = f"read as {known}{_shown(width, dropped)}" + (", FP8 cache" if cache else "")
            return NameReading(known, width, words, cache)
    return None


def _shown(width: str | None, dropped: list[str]) -> str:
    if width is None:
        return ""
    if UNQUANTIZED in dropped:
        return f", {width.upper()}: trained for narrower weights, not narrowed"
    if width.startswith("fp8"):
        how = "by block" if width == "fp8_block" else "per token" if "dynamic" in dropped else ""
        return f", FP8 {how}".rstrip()
    mix = next((w for w in dropped if re.fullmatch(_GGUF, w)), width)
    taken = (
        f" taken as {width.upper()}" if mix.removeprefix("ud-") != width and mix != width else ""
    )
    return f", {mix.upper()}{taken}"


def _candidates(text: str) -> Iterator[tuple[str, str]]:
    """(owner, name) pairs that a text may mean, the likeliest first."""
    text = _HOSTS.sub("", text.strip())
    cached = _CACHED.search(text)
    if cached:
        yield cached[1].lower(), cached[2]
    parts = [part for part in re.split(r"[/\\]", _PARTS_OF_FILE.sub("", text)) if part]
    parts = [
        part
        for index, part in enumerate(parts)
        if not (_SNAPSHOT.fullmatch(part.lower()) and index)
    ]
    for index in range(len(parts) - 1, max(-1, len(parts) - 4), -1):
        owner = parts[index - 1].lower() if index else ""
        before, mark, after = parts[index].partition("--")
        if mark and after:
            yield before.lower(), after
        yield owner, parts[index]


def _spelled(name: str) -> str:
    """Lower case, one separator; of what stands in brackets only widths, after the rest."""
    name = name.replace("___", ".").lower()
    inside = re.sub(r"[,;-]", " ", " ".join(re.findall(r"\(([^()]*)\)", name))).split()
    asides = [w for w in inside if _WIDTH.fullmatch(w) or _ABOUT_WIDTH.fullmatch(w)]
    name = " ".join([re.sub(r"\([^()]*\)", " ", name).strip(), *asides])
    name = name.replace("quantized.", "quantized-").replace(":", "-")
    name = re.sub(r"-([348])b(?=-\d+g\b)", r"-\1bit", name)  # "GPTQ-4b-128g": bits, not billions
    name = re.sub(r"-qat-(\d+b)$", r"-\1-qat", name)  # "gemma3-qat:4B"
    return re.sub(r"[\s/]+", "-", name.strip()).strip("-")


def _strip(name: str, is_known: Callable[[str], str | None]) -> tuple[str, list[str]] | None:
    """The known name inside ``name`` and the words taken off around it."""
    key = _spelled(name)
    dropped: list[str] = []
    for _ in range(24):
        for spelling in (
            key,
            key.replace("_", "-"),
            re.sub(r"(?<=\d)_(?=\d)", ".", key).replace("_", "-"),
        ):
            known = is_known(spelling)
            narrowed = _WIDTH.fullmatch(spelling.rpartition("-")[2]) and set(dropped) & _SCHEMES
            if known and not narrowed:  # "…-fp8" of "…-fp8-dynamic" is not the model's own FP8
                return known, dropped
        cut = _last(key)
        if cut is not None:
            key, word = cut
            dropped.append(word)
            continue
        first, mark, rest = key.partition("-")
        if mark and rest and _PREFIX.fullmatch(first):
            key = rest
            dropped.append(first)
            continue
        return None
    return None


def _last(key: str) -> tuple[str, str] | None:
    """``key`` without its last word where that word is none of the model's own."""
    at = re.fullmatch(
        rf"(.+?)(?:[-_]|\.(?=[a-z]))(ud-[a-z0-9_]+|{_GGUF}|[^-._]+|\d\.\d+bpw|[48]-bits?)", key
    )
    for word in (at[2] if at else "", key.rpartition("-")[2], key.rpartition("_")[2]):
        before = key[: len(key) - len(word)].rstrip("-._")
        if not word or not before:
            continue
        if any(p.fullmatch(word) for p in (_WIDTH, _ABOUT_WIDTH, _VARIANT)):
            return before, word
    return None


_MIXES = (
    "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_xl", "q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_xs",
    "iq4_nl", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k",
)  # fmt: skip
_NEAR = {
    "q8": "q8_0", "q8_k_xl": "q8_0", "q6_k_xl": "q6_k", "q6_k_l": "q6_k", "q6": "q6_k", "q5": "q5_k_m",
    "q5_k_xl": "q5_k_m", "q5_k_l": "q5_k_m", "q5_1": "q5_0", "q5_k": "q5_k_m", "q4": "q4_k_m",
    "q4_k": "q4_k_m", "q4_k_l": "q4_k_m", "q3": "q3_k_m", "q3_k": "q3_k_m", "q3_k_xl": "q3_k_l",
}  # fmt: skip


def _mix(mix: str) -> str:
    """The known mix of GGUF types that is nearest to one of that name."""
    if mix in _MIXES:
        return mix
    return _NEAR.get(mix) or {"4": "iq4_xs", "3": "q3_k_s"}.get(re.sub(r"\D", "", mix)[:1], "q2_k")


def _width(words: list[str], owner: str, known: str) -> str | None:
    """The ``weight_dtype`` that words say."""
    said = set(words)
    if UNQUANTIZED in said:
        return "bf16"
    mix = next((word.removeprefix("ud-") for word in words if re.fullmatch(_GGUF, word)), None)
    for word in words:
        if word.startswith(("nvfp4", "fp4")):
            return "nvfp4"
        if word.startswith("mxfp4"):
            return "mxfp4"
        if word.startswith("mxfp8"):
            return "mxfp8"
    if mix:
        return _mix(mix)
    eight = bool(said & {"int8", "w8a8", "8bit", "8-bit", "w8a16", "8bits"})
    four = bool(
        said & {"int4", "w4a16", "4bit", "4-bit", "4bits", "w4a8", "awq", "gptq", "autoround"}
    )
    if any(word.startswith("fp8") or word.endswith("fp8") for word in words):
        by_block = "block" in said or (owner in _BLOCK_SCALED and "dynamic" not in said)
        return "fp8_block" if by_block else "fp8"
    if eight:
        return "int8"
    if "awq" in said:
        return "awq_int4_g128"
    if said & {"gptq", "autoround"}:
        return "gptq_int4_g128"
    if said & {"bnb", "nf4"}:
        return "nf4"
    if four:
        return "int4"
    exl = next((word.removesuffix("bpw") for word in words if word.endswith("bpw")), None)
    if exl and said & {"exl2", "exl3"}:
        return f"exl2_{float(exl):.1f}"
    for width, spellings in (("bf16", ("bf16", "bfloat16")), ("fp16", ("fp16", "f16"))):
        if said & set(spellings):
            return width
    return QAT_WIDTH if QAT in said else None
