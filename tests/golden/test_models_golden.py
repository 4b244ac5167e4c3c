"""Models whose figures are known from elsewhere.

``params``: counted by transformers for the published config (the model built without memory); for the
Llama and Qwen releases also what their checkpoint index states, for DeepSeek-V3 the report's 671B.
Cache bytes at 16 bits a number: the architecture's arithmetic, which the layer specs of vLLM gave too
(indexer keys as engines keep them: 132 bytes for 128 numbers; windows: the last W tokens).
"""

import pytest

from kvroom.models import catalogue
from kvroom.models.load import load
from support import ask

# Vision towers count as parameters and, as no generated token goes through them, not as active ones.
# name, params, active, bytes a token, state bytes, request of 8,192 tokens, request of 131,072
FIGURES = [
    ("llama-3.3-70b", 70_553_706_496, 70_553_706_496, 327_680, 0, 2_684_354_560, 42_949_672_960),
    ("mistral-7b-v0.1", 7_241_732_096, 7_241_732_096, 0, 0, 536_870_912, 536_870_912),
    ("qwen2.5-72b", 72_706_203_648, 72_706_203_648, 327_680, 0, 2_684_354_560, 42_949_672_960),
    ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704, 98_304, 0, 805_306_368, 12_884_901_888),
    (
        "qwen3-next-80b-a3b",
        79_674_391_296,
        3_874_929_408,
        24_576,
        39_518_208,
        240_844_800,
        3_260_743_680,
    ),
    (
        "qwen3.5-397b-a17b",
        396_802_360_816,
        17_349_040_896,
        30_720,
        192_061_440,
        443_719_680,
        4_218_593_280,
    ),
    ("deepseek-v3", 671_026_404_352, 37_552_282_624, 70_272, 0, 575_668_224, 9_210_691_584),
    ("deepseek-v3.2", 671_877_929_216, 38_403_807_488, 78_324, 0, 641_630_208, 10_266_083_328),
    ("deepseek-v4-flash", 284_332_230_231, 13_799_622_231, 6_229, 0, 56_664_064, 822_083_584),
    (
        "kimi-linear-48b-a3b",
        49_122_675_072,
        3_484_453_248,
        8_064,
        43_417_600,
        109_477_888,
        1_100_382_208,
    ),
    ("glm-4.5", 352_797_814_784, 33_632_251_904, 376_832, 0, 3_087_007_744, 49_392_123_904),
    ("glm-5.2", 743_377_000_704, 41_250_511_104, 92_628, 0, 758_808_576, 12_140_937_216),
    (
        "minimax-text-01",
        456_089_655_296,
        48_403_306_496,
        40_960,
        146_800_640,
        482_344_960,
        5_515_509_760,
    ),
    ("gpt-oss-120b", 116_829_156_672, 5_711_982_912, 36_864, 0, 306_708_480, 4_836_556_800),
    ("gemma-3-27b", 27_432_406_640, 27_009_346_304, 81_920, 0, 1_107_296_256, 11_173_625_856),
    ("gemma-4-26b-a4b", 25_805_933_872, 3_822_530_560, 20_480, 0, 377_487_360, 2_894_069_760),
    ("gemma-3n-e4b", 6_835_235_568, 6_835_235_568, 8_192, 0, 83_886_080, 1_090_519_040),
    ("llama-4-scout", 108_641_793_536, 17_172_894_720, 49_152, 0, 1_610_612_736, 7_650_410_496),
    ("falcon-7b", 6_921_720_704, 6_921_720_704, 8_192, 0, 67_108_864, 1_073_741_824),
    ("falcon-40b", 41_303_293_952, 41_303_293_952, 122_880, 0, 1_006_632_960, 16_106_127_360),
    (
        "falcon-h1-34b",
        33_642_221_312,
        33_642_221_312,
        147_456,
        153_206_784,
        1_361_166_336,
        19_480_559_616,
    ),
    (
        "jamba-v0.1",
        51_570_323_328,
        12_110_311_296,
        16_384,
        8_716_288,
        142_934_016,
        2_156_199_936,
    ),
    (
        "nemotron-3-nano-30b-a3b",
        31_577_937_344,
        3_580_073_408,
        6_144,
        49_082_368,
        99_414_016,
        854_388_736,
    ),
    (
        "nemotron-super-49b",
        49_867_145_216,
        49_867_145_216,
        200_704,
        0,
        1_644_167_168,
        26_306_674_688,
    ),
    (
        "granite-4.0-h-small",
        32_207_337_984,
        8_803_121_664,
        16_384,
        77_322_240,
        211_539_968,
        2_224_805_888,
    ),
    ("command-a", 111_057_580_032, 111_057_580_032, 65_536, 0, 1_342_177_280, 9_395_240_960),
    ("mimo-v2-flash", 308_778_768_832, 15_445_924_288, 23_040, 0, 214_302_720, 3_045_457_920),
]


@pytest.mark.parametrize("figures", FIGURES, ids=lambda f: f[0])
def test_known_figures(figures):
    name, params, active, token, state, short, long = figures
    keys = {"gpu": "80GB", "kv_dtype": "bf16"}
    at_short = ask(name, context_tokens=8192, **keys)
    at_long = ask(name, context_tokens=131_072, **keys)
    found = (
        at_short.weights.params,
        at_short.weights.active_params,
        at_short.kv.bytes_per_token,
        at_short.kv.state_bytes_per_request,
        at_short.kv.bytes_per_request,
        at_long.kv.bytes_per_request,
    )
    assert found == (params, active, token, state, short, long)


@pytest.mark.parametrize("name", catalogue.names())
def test_every_model_of_the_catalogue_answers(name):
    spec = catalogue.find(name)
    assert 0 < spec.active_params <= spec.params
    assert spec.source.startswith(
        ("published config of ", "public start-up logs of ", "class default ")
    )
    assert catalogue.hub_id(name).partition("/")[2]
    assert (ask(name, context_tokens=8192).kv.bytes_per_request > 0) is spec.generates


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("llama-2-7b", 4096),  # Llama 2 paper, table 1: all sizes
        ("llama-2-13b", 4096),
        ("llama-2-70b", 4096),
        ("llama-3.1-8b", 131_072),  # model card: 128k
        ("command-r-plus", 131_072),  # model card: 128K
        ("mixtral-8x22b", 65_536),  # announcement: 64K
        ("gpt-oss-120b", 131_072),  # model card: 128k
        ("gemma-3-27b", 131_072),  # model card: 128K
    ],
)
def test_the_longest_context_is_the_publishers(name, tokens):
    assert catalogue.find(name).max_context_tokens == tokens


TOTALS = {
    # What the hub's safetensors headers sum to, in millions, as the model pages show it.
    "codestral-22b": 22_247,
    "falcon3-7b": 7_456,
    "falcon3-10b": 10_306,
    "solar-10.7b": 10_732,
    "deepseek-coder-33b": 33_343,
    "exaone-3.5-7.8b": 7_818,
    "exaone-3.5-32b": 32_003,
    "aya-expanse-8b": 8_028,
    "pythia-12b": 11_846,
    "llama-3.2-11b-vision": 10_670,
    "smollm2-135m": 134.5,
    "smollm2-360m": 361.8,
    "embeddinggemma-300m": 302.9,
    "qwen3-embedding-0.6b": 595.8,
    "apertus-8b": 8_053,
    "apertus-70b": 70_600,
    "ling-1t": 999_705,
    "dots.llm1": 142_774,
    "nemotron-mini-4b": 4_191,
}


@pytest.mark.parametrize(("name", "millions"), TOTALS.items())
def test_a_catalogue_entry_sums_to_its_published_total(name, millions):
    assert load(name).params / 1e6 == pytest.approx(millions, rel=5e-4)


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("llama3.2-vision:11b", "llama-3.2-11b-vision"),
        ("mistral-small3.2:24b", "mistral-small-3.1-24b"),
        ("qwen2.5vl:7b", "qwen2.5-vl-7b"),
        ("granite3.3:8b", "granite-3.1-8b"),
        ("deepseek-coder:33b", "deepseek-coder-33b"),
        ("smollm2:360m", "smollm2-360m"),
        ("nemotron-mini", "nemotron-mini-4b"),
        ("ring-1t", "ling-1t"),
    ],
)
def test_an_ollama_tag_names_its_model(tag, name):
    assert load(tag).params == load(name).params
