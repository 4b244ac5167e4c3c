"""Run by the engine's own Python: starts vLLM on a model and prints, as JSON, what its worker holds.

    python probe.py MODEL '{"enable_lora": true, …}'

``weights`` are the bytes of the model's parameters, ``adapters`` those of the LoRA buffers (and by
module, as ``modules``), ``draft`` those of a draft's parameters that are not the model's too.
"""

import json
import sys
from collections import Counter
from typing import Any


def held(worker: Any) -> dict[str, Any]:
    """What one worker's memory holds."""
    import torch  # here: the function travels to the worker

    runner = worker.model_runner
    seen: set[int] = set()

    def take(tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()  # once, however many views there are of it
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()

    def tensors(value: object) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        return [t for v in value for t in tensors(v)] if isinstance(value, tuple | list) else []

    weights = sum(take(p) for p in runner.model.parameters())
    modules: Counter[str] = Counter()
    for name, module in runner.model.named_modules():
        for attribute, value in vars(module).items():
            if "lora" in attribute and attribute.endswith("_stacked"):
                modules[name.rpartition(".")[2]] += sum(map(take, tensors(value)))
    draft = getattr(getattr(runner, "drafter", None), "model", None)
    own = sum(take(p) for p in draft.parameters()) if draft is not None else 0
    return {
        "weights": weights,
        "adapters": sum(modules.values()),
        "draft": own,
        "modules": dict(modules),
    }


if __name__ == "__main__":
    from vllm import LLM

    llm = LLM(
        model=sys.argv[1],
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=1024,
        kv_cache_memory_bytes=2**28,
        **json.loads(sys.argv[2]),
    )
    print("HELD", json.dumps(llm.collective_rpc(held)[0]))
