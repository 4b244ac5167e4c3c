"""Hold llama.cpp's rules against a library of its own: ``llama_rows.py FOLDER HEADER``.

FOLDER holds a build of libllama and the ggml libraries beside it (npm's ``@node-llama-cpp/linux-x64``
unpacked, or any other), HEADER that build's ``llama.h`` as plain C declarations. The library is given files
that hold a model's keys and the places of its tensors (``tests/golden/llama_cpp.json``), loads them without
allocating, and logs the caches and the compute buffer of each recorded context. Prints what differs from the
record; ``--write`` records it anew, as what ``--version`` says.

Needs cffi and gguf. Exit status 0 where nothing differs, 1 where something does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "golden" / "llama_cpp.json"
TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
LOADED = ("base", "ggml.", "libllama.")
"""Libraries in the order in which they need each other, by a part of their names; the first backend last."""


class Library:
    """A libllama that keeps what it logs."""

    def __init__(self, folder: Path, header: Path) -> None:
        self.ffi: Any = FFI()
        self.ffi.cdef(header.read_text())
        found = sorted(path for path in folder.iterdir() if ".so" in path.name)
        paths = [next(path for path in found if part in path.name) for part in LOADED]
        self.kept = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in paths]
        self.lib: Any = self.ffi.dlopen(str(paths[-1]))
        self.logged: list[str] = []
        self.hear = self.ffi.callback("void(int, const char *, void *)", self._hear)
        self.lib.llama_log_set(self.ffi.cast("ggml_log_callback", self.hear), self.ffi.NULL)
        backend = next(
            (path for path in found if "cpu-x64" in path.name or "-cpu." in path.name), None
        )
        if backend is not None:
            load = self.kept[1].ggml_backend_load
            load.restype, load.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
            load(str(backend).encode())
        self.lib.llama_backend_init()

    def _hear(self, _: int, text: Any, __: object) -> None:
        self.logged.append(self.ffi.string(text).decode(errors="replace"))

    def model(self, path: str) -> Any:
        """The model of a file, its tensors not allocated."""
        asked = self.lib.llama_model_default_params()
        asked.no_alloc, asked.n_gpu_layers, asked.load_mode = True, 0, 0
        made = self.lib.llama_model_load_from_file(path.encode(), asked)
        if made == self.ffi.NULL:
            raise SystemExit("".join(self.logged)[-400:])
        return made

    def row(self, model: Any, args: dict[str, Any]) -> dict[str, Any]:
        """What it logs of a context."""
        asked, slots = self.lib.llama_context_default_params(), args["parallel"]
        asked.n_ctx, asked.n_seq_max = args["ctx_size"], slots
        asked.n_batch, asked.n_ubatch = args["batch_size"], args["ubatch_size"]
        asked.flash_attn_type = int(args["flash_attn"] == "on")
        asked.kv_unified = bool(args.get("kv_unified"))
        asked.swa_full = bool(args.get("swa_full"))
        asked.type_k = TYPES[args.get("cache_type_k", "f16")]
        asked.type_v = TYPES[args.get("cache_type_v", "f16")]
        asked.n_outputs_max = slots  # as a server asks
        self.logged.clear()
        made = self.lib.llama_init_from_model(model, asked)
        text = "".join(self.logged)
        if made == self.ffi.NULL:
            raise SystemExit(f"{args}: {text[-400:]}")
        self.lib.llama_free(made)
        figures = {
            "attention_mib": r"llama_kv_cache\w*: size =\s+([\d.]+) MiB",
            "state_mib": r"llama_memory_recurrent: size =\s+([\d.]+) MiB",
            "compute_mib": r"compute buffer size =\s+([\d.]+) MiB",
        }
        sums = {name: sum(map(float, re.findall(how, text))) for name, how in figures.items()}
        return {"args": args, **{name: round(value, 2) for name, value in sums.items()}}


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("header", type=Path)
    parser.add_argument("--version", help="what the library is called (v0.5.0, b10488)")
    parser.add_argument("--write", action="store_true", help="into tests/golden")
    given = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests"))
    from golden.test_llama_cpp_buffers import write

    record, library, other = json.loads(RECORD.read_text()), Library(given.folder, given.header), 0
    with tempfile.TemporaryDirectory() as room:
        for name, model in record["models"].items():
            loaded = library.model(write(Path(room) / f"{name}.gguf", model))
            rows = [library.row(loaded, row["args"]) for row in model["rows"]]
            for before, now in zip(model["rows"], rows, strict=True):
                if before != now:
                    other += 1
                    print(f"{name}: {now}, recorded {before}")
            model["rows"] = rows
    print(f"{other} of {sum(len(each['rows']) for each in record['models'].values())} differ")
    if given.write:
        record["build"] = given.version or record["build"]
        RECORD.write_text(json.dumps(record).replace('{"args"', '\n{"args"') + "\n")
    return int(other > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
