"""Scripts as they are written, followed and never run: what each of a shell's constructs comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command

SERVE = "vllm serve m -tp"
SAME = {
    "a default": f"{SERVE} ${{TP:-2}}",
    "a default that is kept": f": ${{TP:=2}}\n{SERVE} $TP",
    "a default without a colon": f"{SERVE} ${{TP-2}}",
    "another value where it is set": f"A=1; {SERVE} ${{A:+2}}",
    "nested defaults": f"{SERVE} ${{TP:-${{GPUS:-2}}}}",
    "an array": 'ARGS=(-tp "2"  # two cards\n)\nvllm serve m "${ARGS[@]}"',
    "an array that grows": 'ARGS=()\nARGS+=(-tp 2)\nvllm serve m "${ARGS[@]}"',
    "a slice": 'A=(x -tp 2)\nvllm serve m "${A[@]:1}"',
    "an element and a count": f'A=(9 2)\n[ "${{#A[@]}}" = 2 ] && {SERVE} "${{A[1]}}"',
    "arithmetic": f"N=4; {SERVE} $((N / 2))",
    "arithmetic of a default": f"{SERVE} $(( ${{N:-4}} - 2 ))",
    "an arithmetic command": f"((TP = 1 << 1)); {SERVE} $TP",
    "split words": "ARGS='-tp 2'\nvllm serve m $ARGS",
    "a command in a variable": 'CMD="vllm serve m"\nCMD+=" -tp 2"\n$CMD',
    "eval": 'CMD="vllm serve m -tp 2"; eval "$CMD"',
    "exec and a pipe": f"exec {SERVE} 2 2>&1 | tee server.log",
    "nohup": f"nohup {SERVE} 2 > out.log 2>&1 &\nsleep 5",
    "env": f"env A=b {SERVE} 2",
    "bash -c": f"N=1; bash -c \"{SERVE} $((N + 1))\"",
    "a here-document": f"cat > run.sh <<EOF\n{SERVE} 2\nEOF\nbash run.sh",
    "a shell's standard input": f"ssh host bash <<'EOF'\n{SERVE} 2\nEOF",
    "and": f"cd /srv && {SERVE} 2 || echo failed",
    "or": f"which vllm || pip install vllm\n{SERVE} 2",
    "if": f'G=8\nif [ "$G" = 8 ]; then TP=2; else TP=4; fi\n{SERVE} $TP',
    "elif": f"G=4\nif [[ $G -eq 8 ]]; then TP=8; elif [[ $G -ge 4 && $G != 5 ]]; then TP=2; fi\n{SERVE} $TP",
    "if not": f'A=x; if ! [ -z "$A" ]; then {SERVE} 2; fi',
    "a pattern": f"M=Qwen3-8B; if [[ $M == Qwen3* ]]; then TP=2; else TP=1; fi; {SERVE} $TP",
    "an expression": f"M=qwen3; if [[ $M =~ ^qwen[0-9]$ ]]; then {SERVE} 2; fi",
    "case": f"M=b; case $M in a) TP=1;; b|c) TP=2;; *) TP=4;; esac; {SERVE} $TP",
    "a function": 'go() { local n="$1"; shift; vllm serve "$1" -tp "$n"; }\ngo 2 m',
    "options of the script": (
        f"while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) exit 1;; esac; done\n"
        f"{SERVE} ${{TP:-2}}"
    ),
    "a loop that gathers": 'for a in -tp 2; do A+=("$a"); done\nvllm serve m "${A[@]}"',
    "a loop that counts": f"for ((i = 0; i < 2; i++)); do :; done\n{SERVE} $i",
    "a script that is checked": f'if [ ! -x /usr/bin/vllm ]; then echo no; exit 1; fi\n{SERVE} 2',
    "echo": f'echo "vllm serve other -tp 8"\n{SERVE} $(echo 2)',
    "Windows": f"set TP=2\r\n{SERVE} %TP%\r\n".replace("%TP%", "$TP"),
    "cut and replaced": f'A=tp2x; A=${{A#tp}}; {SERVE} "${{A/x/}}"',
    "braces": f"set -- a{{1,2}} {{0..4..2}}; {SERVE} $4",
    "seq": f"for n in $(seq 1 2); do :; done; {SERVE} $n",
    "a function that prints": f'two() {{ echo "$(( $1 * 2 ))"; }}\n{SERVE} $(two 1)',
    "a choice that prints": f'I=1024; {SERVE} $([[ "$I" == 1024 ]] && echo 2 || echo 4)',
    "a pipe of filters": f"GPUS=0,1; {SERVE} $(echo $GPUS | tr ',' '\\n' | wc -l)",
    "read": f"IFS=, read -ra G <<< 0,1; {SERVE} ${{#G[@]}}",
    "mapfile": f"mapfile -t G < <(seq 2); {SERVE} ${{#G[@]}}",
    "a file that is echoed": 'echo "tensor-parallel-size: 2" > c.yaml\nvllm serve m --config c.yaml',
    "a variable in front": f'A=2; A=9 B=8 {SERVE} $A',
    "a wait for a server": f"while true; do if curl -s x; then break; fi; sleep 1; done\n{SERVE} 2",
    "a wait with a limit": f"n=0; until curl -s x; do n=$((n+1)); [ $n -gt 9 ] && exit 1; done\n{SERVE} 2",
    "an error's way": f'echo no >&2\n{SERVE} 2 2> err > out',
    "basename": f'P=/m/2.sh; {SERVE} "$(basename "$P" .sh)"',
    "a wait": f"{SERVE} 2 &\nwhile ! curl -s localhost:8000/health; do sleep 1; done",
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_a_shell_makes_of_it(name: str) -> None:
    read = read_command(SAME[name])
    assert read.keys == {"engine": "vllm", "model": "m", "tp": 2}
    assert read.warnings == ()


SAID = {
    "an if": (
        f'TP=1\nif [ "$GPUS" = "8" ]; then\n  TP=8\nfi\n{SERVE} $TP', 1,
        'TP is 8 if [ "$GPUS" = "8" ]; taken as 1',
    ),
    "through another variable": (
        'TP=1\nif [ "$GPUS" = "8" ]; then TP=8; fi\nARGS="-tp $TP"\nvllm serve m $ARGS', 1,
        'TP is 8 if [ "$GPUS" = "8" ]; taken as 1',
    ),
    "a case": (
        f'case "$M" in a) TP=2;; *) TP=4;; esac\n{SERVE} $TP', 4, 'TP is 2 if "$M" is a; taken as 4',
    ),
    "or": (f'[ -n "$TP" ] || TP=2\n{SERVE} $TP', 2, "TP is taken as 2"),
    "a condition on what hangs on one": (
        f'TP=1\nif [ "$GPUS" = "8" ]; then TP=8; fi\nN=1\nif [ $TP = 8 ]; then N=2; fi\n{SERVE} $N', 1,
        "N is 2 if [ $TP = 8 ]; taken as 1",
    ),
    "a program's outcome": (
        f"TP=1\nif nvidia-smi | grep -q H200; then TP=4; fi\n{SERVE} $TP", 1, "TP is 4 if nvidia-smi",
    ),
    "a loop": (f"for TP in 1 2 4; do\n  {SERVE} $TP\ndone", 1, "TP takes each of '1 2 4'"),
    "a start that hangs on a condition": (
        f'if [ "$MODE" = server ]; then {SERVE} 2; fi', 2, 'started if [ "$MODE" = server ]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_is_conditional_is_said(name: str) -> None:
    text, tp, note = SAID[name]
    read = read_command(text)
    assert read.keys["tp"] == tp
    assert any(note in w for w in read.warnings), read.warnings


def test_a_pattern_that_python_reads_otherwise_is_not_known() -> None:
    read = read_command("A=x\nif [[ $A =~ [[x]] ]]; then TP=2; else TP=2; fi\nvllm serve m -tp $TP")
    assert read.keys["tp"] == 2


def test_only_what_is_exported_reaches_the_engine() -> None:
    text = "VLLM_ATTENTION_BACKEND=FLASHINFER\nvllm serve m -tp 2"
    hidden = read_command(text)
    assert "engine_args" not in hidden.keys
    assert any("not exported" in warning for warning in hidden.warnings)
    for way in ("export {}\n", "set -a\n{}\n", "env {} ", "{} ", "declare -x {}\n"):
        line = way.format("VLLM_ATTENTION_BACKEND=FLASHINFER")
        read = read_command(f"{line}vllm serve m -tp 2")
        assert read.keys["engine_args"] == {"attention_backend": "FLASHINFER"}, way


def test_what_only_serves_may_be_open() -> None:
    read = read_command(
        "vllm serve m -tp 2 --allowed-local-media-path $ROOT/x --served-model-name $N"
    )
    assert read.keys == {"engine": "vllm", "model": "m", "tp": 2}
    with pytest.raises(KvroomError, match="--set LEN="):
        read_command("vllm serve m --max-model-len $LEN")


def test_a_condition_that_bears_on_nothing_is_not_said() -> None:
    read = read_command('PORT=1\nif [ "$X" = 1 ]; then PORT=2; fi\nvllm serve m -tp 2')
    assert read.warnings == ()


def test_values_of_variables_hold() -> None:
    text = f'TP=1\nif [ "$GPUS" = "8" ]; then TP=8; fi\n{SERVE} $TP'
    assert read_command(text, {"GPUS": "8"}).keys["tp"] == 8
    assert read_command(text, {"GPUS": "8"}).warnings == ()
    own = read_command(text, {"TP": "4"})
    assert own.keys["tp"] == 1
    assert any("--set TP=4 does not hold" in w for w in own.warnings)
    least = f"TP=$(( TP > 2 ? TP : 2 ))\n{SERVE} $TP"
    assert [read_command(least, {"TP": n}).keys["tp"] for n in "18"] == [2, 8]
    assert read_command(f"TP=$(nvidia-smi -L | wc -l)\n{SERVE} $TP", {"TP": "4"}).keys["tp"] == 4
    compose = "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model m -tp ${TP}\n"
    assert read_command(compose, {"TP": "4"}).keys["tp"] == 4


def test_every_variable_without_a_value_is_listed_at_once() -> None:
    text = 'if [ -z "$MODEL" ]; then echo usage; exit 1; fi\nN=$(nproc)\n'
    text += "vllm serve $MODEL -tp ${TP:?} --max-num-seqs $((SEQS * 2)) --max-num-batched-tokens $N $MORE"
    with pytest.raises(KvroomError) as e:
        read_command(text)
    assert all(name in e.value.field for name in ("model", "-tp", "--max-num-seqs"))
    assert all(f"--set {name}=" in e.value.fix for name in ("MODEL", "TP", "SEQS", "N"))
    values = {"MODEL": "m", "TP": "2", "SEQS": "4", "N": "1024"}
    read = read_command(text, values)
    assert read.keys["engine_args"] == {"max_num_seqs": 8, "max_num_batched_tokens": 1024}
    assert read.warnings == ("'$MORE' has no value: taken as empty",)


@pytest.mark.parametrize(
    "text",
    [
        'A=x\nwhile true; do A="$A$A"; done\nvllm serve $A',
        "f() { f; f; }\nf\nvllm serve m",
        "for i in {1..1000}; do for j in {1..1000}; do :; done; done; vllm serve m",
        "(" * 500 + "vllm serve m" + ")" * 500,
        "vllm serve m --max-num-seqs $((" + "(" * 500 + "1" + ")" * 500 + "))",
        "vllm serve " + "${A:-" * 300 + "m" + "}" * 300,
        "A=A\nvllm serve m -tp $((A))",
        "vllm serve m -tp $((2 ** 99999999999))",
        "if " * 200 + "vllm serve m",
    ],
)
def test_what_never_ends_is_refused(text: str) -> None:
    try:
        read_command(text)
    except KvroomError as e:
        assert e.fix


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"touch {mark}; X=$(touch {mark}); eval 'touch {mark}'; `touch {mark}`\n{SERVE} 2"
    read_command(text)
    assert not mark.exists()


def test_a_container_may_take_its_variables_from_the_host() -> None:
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai\n    environment: [HF_TOKEN, TP]\n"
        "    command: --model m -tp ${TP:-2}\n"
    )
    assert read_command(text).keys["tp"] == 2
    assert read_command(text, {"TP": "4"}).keys["tp"] == 4


def test_a_file_of_options_grows_as_the_script_goes() -> None:
    text = (
        'cat > o.yml <<EOF\nmax-num-seqs: $N\nEOF\nif [ "$DP" = true ]; then\ncat <<EOF >> o.yml\n'
        "max-num-batched-tokens: 4096\nEOF\nfi\nvllm serve m --config o.yml"
    )
    assert read_command(text, {"N": "8", "DP": "false"}).keys["engine_args"] == {"max_num_seqs": 8}
    both = {"max_num_seqs": 8, "max_num_batched_tokens": 4096}
    assert read_command(text, {"N": "8", "DP": "true"}).keys["engine_args"] == both
