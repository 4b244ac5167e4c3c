"""Sources to bytecode, and of the standard library only what they need. Runs inside Pyodide (``pack.mjs``).

``/sources.zip`` becomes ``/kvroom-packed.zip``, ``/library.zip`` becomes ``/library-packed.zip``: zips of
``.pyc`` files, stored, since they are packed as a whole afterwards. Bytecode belongs to one release of
Python, so it is made by the very one that will read it.
"""

import ast
import marshal
import sys
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER
from zipfile import ZipFile, ZipInfo

ALWAYS = {
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "encodings.utf_16",
    "encodings.utf_8_sig",
}
"""Found by name when text is read, and by no import."""
NEVER = {
    "_pyrepl",
    "doctest",
    "pdb",
    "pydoc",
    "sqlite3",
    "test",
    "tkinter",
    "unittest",
    "wsgiref",
    "xmlrpc",
}
"""Tools of those who write programs, which modules import for their own tests."""
STRIPPED = 2
"""Without assertions and docstrings."""
UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""The head of bytecode that is not held against a source (PEP 552)."""


def imports(source: bytes, within: str, whole: bool) -> Iterator[str]:
    """Names that ``source`` may import; without ``whole`` only when it is itself imported."""
    left: list[ast.AST] = [ast.parse(source)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = within.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)
        elif whole or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left.extend(ast.iter_child_nodes(node))


def module_name(path: str) -> str:
    """The module that a file is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package(path: str) -> str:
    """The package that a file's relative imports start from."""
    return (
        module_name(path) if path.endswith("/__init__.py") else module_name(path).rpartition(".")[0]
    )


def packed(target: str, files: dict[str, bytes], root: str) -> None:
    """Write ``files`` into a zip, Python's as bytecode that says it lies below ``root``."""
    with ZipFile(target, "w") as out:
        for path, data in sorted(files.items()):
            if not path.endswith(".py"):
                out.writestr(ZipInfo(path), data)
                continue
            code = compile(data, root + path, "exec", dont_inherit=True, optimize=STRIPPED)
            out.writestr(ZipInfo(path + "c"), UNCHECKED + marshal.dumps(code))


def needed(library: dict[str, bytes], first: set[str]) -> dict[str, bytes]:
    """The files of ``library`` that modules ``first`` need when they are imported, with those; of its own
    package also what a module imports later."""
    homes = {module_name(path): path for path in library if path.endswith(".py")}
    kept: dict[str, bytes] = {}
    left = sorted(first)
    while left:
        name = left.pop()
        path = homes.get(name)
        if path is None or path in kept or name.partition(".")[0] in NEVER:
            continue
        kept[path] = library[path]
        left.extend(imports(library[path], package(path), whole=False))
        own = name.partition(".")[0]
        later = imports(library[path], package(path), whole=True)
        left.extend(one for one in later if one.partition(".")[0] == own)
        if "." in name:
            left.append(name.rpartition(".")[0])
    return kept


def read(path: str) -> dict[str, bytes]:
    """The files of a zip."""
    with ZipFile(path) as opened:
        return {one.filename: opened.read(one) for one in opened.infolist() if not one.is_dir()}


sources, library = read("/sources.zip"), read("/library.zip")
first = ALWAYS | set(sys.modules)
for path, data in sources.items():
    if path.endswith(".py"):
        first |= set(imports(data, package(path), whole=True))
packed("/kvroom-packed.zip", sources, "/lib/site/")
packed("/library-packed.zip", needed(library, first), "/lib/python/")
