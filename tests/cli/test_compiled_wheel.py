"""The wheel whose simulator is compiled: it answers what the pure one does, byte for byte."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT.parent / "shared" / "accept" / "check.py"
PURE = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"} | {
    "PYTHONPATH": str(ROOT / "src"),
    "COLUMNS": "100",
}
COMPILED = {k: v for k, v in PURE.items() if k != "PYTHONPATH"}

pytestmark = pytest.mark.slow

LOAD = "arrivals=poisson:{}/s,input=lognormal:mean=900:sigma=0.8:max=6000,output=lognormal:mean=150:sigma=0.8"
CHATS = f"{LOAD.format(4)},turns=exponential:mean=4:min=1,think=exponential:mean=5s,prefix=shared:20x512"
ANSWERS = {
    "plain": ("llama-3.1-8b", "--gpu", "H100-SXM", "--workload", LOAD.format(12)),
    "windows": ("gemma-3-27b", "--gpu", "H200-SXM", "--workload", LOAD.format(8)),
    "window and full": ("gpt-oss-120b", "--gpu", "H200-SXM:4", "--workload", LOAD.format(8)),
    "chunks": ("llama-4-scout", "--gpu", "H200-SXM:8", "--workload", LOAD.format(8)),
    "state": ("qwen3-next-80b-a3b", "--gpu", "H200-SXM:4", "--workload", LOAD.format(8)),
    "state and attention": ("falcon-h1-34b", "--gpu", "H200-SXM:4", "--workload", LOAD.format(8)),
    "chats": ("llama-3.1-8b", "--gpu", "H100-SXM", "--workload", CHATS),
    "chats over windows": ("gemma-3-27b", "--gpu", "H200-SXM", "--workload", CHATS),
    "chats over state": ("qwen3-next-80b-a3b", "--gpu", "H200-SXM:4", "--workload", CHATS),
    "replicas": (
        "llama-3.1-8b", "--gpu", "H100-SXM", "--replicas", "4", "--routing", "prefix",
        "--workload", CHATS,
    ),
    "preemption": (
        "llama-3.1-8b", "--gpu", "H100-SXM", "--engine-arg", "num_gpu_blocks_override=600",
        "--workload", LOAD.format(12),
    ),
    "preemption by priority": (
        "llama-3.1-8b", "--gpu", "H100-SXM", "--engine-arg", "num_gpu_blocks_override=600",
        "--engine-arg", "scheduling_policy=priority", "--workload", LOAD.format(12),
    ),
    "preemption over windows": (
        "gemma-3-27b", "--gpu", "H200-SXM", "--engine-arg", "num_gpu_blocks_override=4000",
        "--workload", CHATS,
    ),
    "a closed loop": (
        "llama-3.1-8b", "--gpu", "H100-SXM", "--workload",
        "arrivals=closed:32,input=900,output=150",
    ),
    "all at once": ("llama-3.1-8b", "--gpu", "H100-SXM", "--workload", "arrivals=once,input=900,output=150"),
    "another engine": (
        "llama-3.1-8b", "--gpu", "H100-SXM", "--engine", "sglang", "--workload", CHATS,
    ),
    "prompts elsewhere": (
        "llama-3.1-8b", "--gpu", "H100-SXM",
        "--disaggregation", '{"prefill": {"count": 2}, "decode": {"count": 2}}', "--workload", CHATS,
    ),
}  # fmt: skip


def run(*command, env=COMPILED, **more):
    return subprocess.run(
        [str(c) for c in command], capture_output=True, check=False, env=env, text=True, **more
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    for needed in ("build", "mypyc", "setuptools"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    compiler = (sysconfig.get_config_var("CC") or "cl").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler: {compiler}")
    out = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    done = run(*build, env=PURE | {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"})
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("kvroom-*.whl")
    return made


@pytest.fixture(scope="module")
def compiled(wheel, tmp_path_factory):
    """The command of an environment that has this wheel, and the dependencies of the one that runs."""
    home = tmp_path_factory.mktemp("venv")
    assert run(sys.executable, "-m", "venv", "--without-pip", home).returncode == 0
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    done = run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(run(python, "-c", asked).stdout.strip())
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "kvroom"


def test_the_compiler_is_the_one_that_checks_types():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    (needed,) = hook["dependencies"]
    assert needed.replace("[mypyc]", "") in (ROOT / "requirements.lock").read_text().split()


def test_it_is_of_this_platform_and_says_so(wheel, compiled):
    assert "-none-any" not in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "kvroom/simulator/event_engine.py" in names  # for tracebacks and readers
    assert not list((ROOT / "src").rglob("*.so"))
    assert run(compiled, "--version").stdout.endswith("(compiled)\n")
    assert run(sys.executable, "-m", "kvroom", "--version", env=PURE).stdout.endswith(
        "(pure Python)\n"
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_it_answers_the_same(compiled, name, tmp_path):
    *question, workload = ANSWERS[name]
    asked = ("simulate", *question, f"{workload},requests=400,seed=3", "--context", "8K")
    for more in (("--json",), ()):
        told = []
        for env, command in ((PURE, (sys.executable, "-m", "kvroom")), (COMPILED, (compiled,))):
            out = tmp_path / "rows.jsonl"
            done = run(*command, *asked, "--per-request", out, *more, env=env, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            told.append((done.stdout, out.read_bytes()))  # progress goes by the clock on the wall
        assert told[0] == told[1]


@pytest.mark.skipif(not CHECK.exists(), reason="recorded runs are not here")
def test_it_replays_recorded_runs(compiled):
    done = run(sys.executable, CHECK, "replay", "--kvroom", compiled)
    assert done.returncode == 0, done.stdout
