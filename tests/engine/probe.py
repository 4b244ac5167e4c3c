"""Run by the engine's own Python: starts vLLM on a model and prints how large its LoRA buffers are.

    python probe.py MODEL '{"enable_lora": true, …}'

Prints ``ADAPTERS`` and their bytes.
"""

import json
import sys
from typing import Any


def adapters(worker: Any) -> int:
    """Bytes of one worker's LoRA buffers; each once, however many views there are of it."""
    import torch  # here: the function travels to the worker

    def tensors(value: object) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        return [t for v in value for t in tensors(v)] if isinstance(value, tuple | list) else []

    sizes = {}
    for module in worker.model_runner.model.modules():
        for name, value in vars(module).items():
            if "lora" in name and name.endswith("_stacked"):
                stores = [t.untyped_storage() for t in tensors(value)]
                sizes.update({s.data_ptr(): s.nbytes() for s in stores})
    return sum(sizes.values())


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
    print("ADAPTERS", llm.collective_rpc(adapters)[0])
