"""What runs on SGLang, on which chips.

Sources: the choices of ``--kv-cache-dtype``, what its ``ModelRunner`` refuses, and the pages named.
"""

from __future__ import annotations

from kvroom.engines.support import CDNA, TENSORS, W4, W4F, Requirement, Support, drafting, split

_KV = "SGLang documentation, Quantized KV Cache"
_WEIGHTS = "SGLang documentation, Quantization"
_AMPERE = "Ampere or later"
_CHOICES = "SGLang, choices of --kv-cache-dtype, release by release"
_ALGORITHMS = "SGLang, choices of --speculative-algorithm, release by release"

SUPPORT = Support(
    cache={
        "fp8": Requirement(source=_KV, capability=8.0, chips=_AMPERE, amd=CDNA, refuses=True),
        "bf16": Requirement(source=_CHOICES, since=(0, 5, 4)),
        "nvfp4": Requirement(
            source=f"{_KV}; {_CHOICES}",
            since=(0, 5, 5),
            capability=10.0,
            chips="Blackwell",
            refuses=True,
        ),
    },
    weights={
        "fp8": Requirement(source=_WEIGHTS, capability=8.9, chips="Ada or later", amd=CDNA),
        "int4": Requirement(
            source=_WEIGHTS, capability=8.0, chips=_AMPERE, flag=False, checkpoint=W4
        ),
        "nvfp4": Requirement(
            source="SGLang, ModelOptFp4Config; github sgl-project/sglang pull request 19652",
            capability=10.0,
            chips="Blackwell",
            flag=False,
            checkpoint=W4F,
        ),
    },
    drafting={
        **drafting("SGLang documentation, Speculative Decoding", "mtp", "eagle3"),
        "draft": Requirement(source=_ALGORITHMS, since=(0, 5, 2)),
        "ngram": Requirement(source=_ALGORITHMS, since=(0, 5, 3)),
    },
    offload=Requirement(source="SGLang documentation, HiCache Best Practices"),
    storage_below_host=True,
    split=split("SGLang documentation, PD Disaggregation", "Mooncake or the NIXL library"),
    cache_types=("bf16", "fp8", "nvfp4"),
    weight_types=TENSORS,
    capability=7.5,
)
