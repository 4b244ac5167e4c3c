"""The page as files: all that a host of plain files needs to show it, answered by Python inside the browser.

``write`` makes a folder anew: the page and its scripts, the core as bytecode, Pyodide (which the caller has
installed: npm's folder of that name), answers that came along, and a service worker that keeps it all. Big
files are gzipped under the name ``….pack`` and unpacked by the page, so that their size on the way does not
depend on the host.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.ui import codec
from kvroom.ui.web import page, routes
from kvroom.ui.web.nearby import nearby
from kvroom.ui.web.questions import PageQuestion

PYODIDE = "314.0.7"
"""The release of npm's ``pyodide`` that the page is tested with."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'"
)
START = "kvroom.ui.web.in_page"
BY_NAME = ("kvroom.engines", "kvroom.models.hf")
"""Packages whose modules are looked up by name, and by no import."""
BORROWED = ("yaml",)
"""Plain Python of others that the core reads files with."""
DATA = (".json", ".toml", ".ini")
SHOWN = (".js", ".css", ".svg", ".woff2", ".LICENSE")
_HERE = Path(__file__).parent
_STATIC, _CORE = _HERE / "static", _HERE / "core"
_SOURCES = _HERE.parents[2]


@dataclass(frozen=True, kw_only=True)
class Site:
    """What was written: ``files`` and their bytes, ``bytecode`` whether Node was there to make it."""

    folder: Path
    files: dict[str, int]
    bytecode: bool
    version: str


def write(folder: Path, pyodide: Path) -> Site:
    """Write the site into ``folder``, which must be empty, new, or an older site.

    KvroomError where ``pyodide`` holds no Pyodide of PYODIDE, or ``folder`` other files.
    """
    _check(folder, pyodide)
    with tempfile.TemporaryDirectory(dir=_parent(folder), prefix=".kvroom-site") as made:
        new = Path(made) / "site"
        (new / "python").mkdir(parents=True)
        for path in sorted(_STATIC.rglob("*")):
            if path.suffix in SHOWN:
                (new / path.relative_to(_STATIC)).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, new / path.relative_to(_STATIC))
        for name in ("pyodide.mjs", "pyodide.asm.mjs"):
            shutil.copyfile(pyodide / name, new / "python" / name)
        lock = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))
        lock["packages"] = {}  # none of what else there is for Pyodide
        (new / "python/pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")
        _pack(new / "python/pyodide.asm.wasm", (pyodide / "pyodide.asm.wasm").read_bytes())
        bytecode = _core(new / "python", pyodide, Path(made))
        _pack(new / "nearby", codec.encode(nearby()).encode())
        for route in routes.table():
            if route.body == "none":
                answer = codec.encode(route.answer(PageQuestion(), _Nobody()))
                (new / route.path.lstrip("/")).parent.mkdir(exist_ok=True)
                (new / route.path.lstrip("/")).write_text(answer, encoding="utf-8")
        version = _version(new)
        (new / "index.html").write_text(index(version), encoding="utf-8")
        _keep(new, version)
        if folder.is_dir():
            shutil.rmtree(folder)
        new.rename(folder)
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return Site(folder=folder, files=files, bytecode=bytecode, version=version)


class _Nobody:
    """A listener of answers that say nothing on the way."""

    heading: dict[str, Any] | None = None

    def say(self, value: dict[str, Any]) -> None:
        """Nothing."""

    def gone(self) -> bool:
        """Never."""
        return False


def _parent(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.parent


def _check(folder: Path, pyodide: Path) -> None:
    try:
        version = json.loads((pyodide / "package.json").read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        fix = f"Run: npm install pyodide@{PYODIDE}, and give node_modules/pyodide (make site does)."
        raise KvroomError("--pyodide", str(pyodide), "is no folder of Pyodide", fix) from None
    if version != PYODIDE:
        fix = f"Run: npm install pyodide@{PYODIDE}."
        raise KvroomError("--pyodide", version, "is not the release that the page is made for", fix)
    if folder.exists() and not (
        folder.is_dir() and ((folder / "sw.js").is_file() or not any(folder.iterdir()))
    ):
        fix = "Give a new or empty folder, or one that holds an older site."
        raise KvroomError("DIR", str(folder), "holds other files", fix)


def _pack(path: Path, data: bytes) -> None:
    path.with_name(f"{path.name}.pack").write_bytes(gzip.compress(data, 9, mtime=0))


def index(version: str) -> str:
    """The page for hosts of files: it says which worker answers, and what it may load."""
    status, html = page.render()
    assert status == 200
    head = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    assert page.MARKER in html
    html = html.replace(page.MARKER, (_STATIC / "here.html").read_text(encoding="utf-8"), 1)
    html = html.replace('<html lang="en">', f'<html lang="en" data-core="worker.js?{version}">', 1)
    return html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{head}', 1)


def _version(folder: Path) -> str:
    """A name of all that the files hold."""
    sums = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            sums.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    sums.update(index("").encode())
    return sums.hexdigest()[:16]


def _keep(folder: Path, version: str) -> None:
    """Tell the service worker what to keep."""
    worker = folder / "sw.js"
    files = [
        "./",
        *(p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()),
    ]
    files = [name for name in files if name not in ("sw.js", "index.html")]
    content = json.dumps({"version": version, "files": files})
    worker.write_text(
        f"const KEPT = {content};\n{worker.read_text(encoding='utf-8')}", encoding="utf-8"
    )


# ---- the core ----


def modules(start: Iterable[str]) -> dict[str, Path]:
    """Files of the modules of kvroom that ``start`` and what they import, at any time, may need."""
    modules_needed: dict[str, Path] = {}
    left = [*start]
    while left:
        name = left.pop()
        file = _file(name)
        if name in modules_needed or file is None:
            continue
        modules_needed[name] = file
        if "." in name:
            left.append(name.rpartition(".")[0])
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                left += [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return modules_needed


def _file(name: str) -> Path | None:
    place = _SOURCES / Path(*name.split("."))
    for file in (place / "__init__.py", place.with_suffix(".py")):
        if file.is_file():
            return file
    return None


def sources() -> Iterator[tuple[str, bytes]]:
    """Every file of the core: name and bytes."""
    by_name = [
        ".".join(path.relative_to(_SOURCES).with_suffix("").parts)
        for package in BY_NAME
        for path in (_SOURCES / Path(*package.split("."))).rglob("*.py")
    ]
    files = {*modules([START, *by_name]).values()}
    files |= {path for path in (_SOURCES / "kvroom").rglob("*") if path.suffix in DATA}
    for path in sorted(files):
        name = path.relative_to(_SOURCES).as_posix()
        if path.suffix == ".toml":  # read once, here
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            yield name.removesuffix(".toml") + ".json", json.dumps(table).encode()
        elif _STATIC not in path.parents:
            yield name, path.read_bytes()
    for name in BORROWED:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            home = Path(spec.origin).parent
            for path in sorted(home.rglob("*.py")):
                yield path.relative_to(home.parent).as_posix(), path.read_bytes()


def _core(target: Path, pyodide: Path, room: Path) -> bool:
    """The core and the standard library, as bytecode where Node is there to make it; else as sources."""
    plain = room / "sources.zip"
    with zipfile.ZipFile(plain, "w") as archive:
        for name, data in sources():
            archive.writestr(zipfile.ZipInfo(name), data)  # stored, as worker.js reads it
    node = shutil.which("node")
    if node is None:
        _pack(target / "kvroom.zip", plain.read_bytes())
        _pack(target / "library.zip", (pyodide / "python_stdlib.zip").read_bytes())
        return False
    run = subprocess.run(
        [node, _CORE / "pack.mjs", pyodide, plain, room],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        fix = "Use Node 18 or newer."
        why = (
            f"could not make bytecode ({run.stderr.strip().splitlines()[-1:] or 'no word of why'})"
        )
        raise KvroomError("node", node, why, fix)
    for name in ("kvroom.zip", "library.zip"):
        _pack(target / name, (room / name).read_bytes())
    return True
