"""Any script is followed to a command or an error: nothing hangs, nothing else is raised, nothing is run.

``KVROOM_SCRIPTS=10000`` tries so many.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.launchers.starts import Start, script_starts

SCRIPTS = int(os.environ.get("KVROOM_SCRIPTS", "300"))
BASH = shutil.which("bash")

PIECES = (
    "if ", "; then ", "elif ", "else ", "fi\n", "for x in ", "; do ", "done\n", "while ",
    "until ", "case ", " in ", "a) ", ";; ", "esac\n", "f() { ", "}\n", "(", ")", "((", "))",
    "[ ", " ]", "[[ ", " ]]", "&&", "||", "|", "&", ";", "\n", "!", "A=1 ", "A+=x ", "B=(1 2) ",
    "$A", "${A:-b}", "${A:=$B}", "${B[@]}", '"${B[@]}"', "$((A + 1))", "$(nproc)", "`date`", "'",
    '"', "\\", "<<EOF\n", "\nEOF\n", "> f ", "<<< x ", "$", "${", "}", "vllm serve m ", "-tp ",
    "2 ", "$TP ", "eval ", "bash -c ", "set -- a b\n", "shift\n", "exit 1\n", "return\n",
    "break\n", "continue\n", "f ", "{1..9} ", "local A=2\n", "-eq ", "= ", "=~ ", "-z ", "#",
    "*", "?", "${A//x/y}", "${A%%*}", "$'\\n'", "unset A\n", "read A\n", "<(ls)", "[@]",
    "export ",
)  # fmt: skip


def check(text: str) -> None:
    try:
        read = read_command(text)
    except KvroomError as e:
        assert e.fix
    else:
        assert read.keys["engine"] == "vllm"


@settings(max_examples=max(1_500, SCRIPTS), deadline=5_000)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_pieces_of_scripts(text: str) -> None:
    check(text)
    check(text + "\nvllm serve m -tp 2")


NAMES = st.sampled_from(("A", "B", "C"))
VALUES = st.sampled_from(("1", "2", "3"))


@st.composite
def assignments(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A script of conditional assignments whose variables are all known, and what it comes to."""
    values = {"A": "1", "B": "2", "C": "3"}
    lines = ["A=1 B=2 C=3"]
    for _ in range(draw(st.integers(1, 6))):
        name, test, value, other = draw(NAMES), draw(NAMES), draw(VALUES), draw(VALUES)
        form = draw(st.sampled_from(("if", "case", "and", "default", "sum")))
        holds = values[test] == value
        if form == "if":
            lines.append(
                f'if [ "${test}" = {value} ]; then {name}={other}; else {name}={value}; fi'
            )
            values[name] = other if holds else value
        elif form == "case":
            lines.append(f"case ${test} in {value}) {name}={other};; *) {name}=7;; esac")
            values[name] = other if holds else "7"
        elif form == "and":
            lines.append(f"[[ ${test} == {value} ]] && {name}={other}")
            values[name] = other if holds else values[name]
        elif form == "default":
            lines.append(f"{name}=${{{test}:-9}}")
            values[name] = values[test]
        else:
            lines.append(f"{name}=$(({test} + {value}))")
            values[name] = str(int(values[test]) + int(value))
    return "\n".join(lines), values


@settings(max_examples=SCRIPTS, deadline=None)
@given(assignments())
def test_what_is_known_is_as_a_shell_has_it(made: tuple[str, dict[str, str]]) -> None:
    text, values = made
    read = read_command(f"{text}\nvllm serve m -tp $A --max-num-seqs $B --block-size $C")
    assert read.keys["tp"] == int(values["A"])
    assert read.keys["engine_args"] == {
        "max_num_seqs": int(values["B"]), "block_size": int(values["C"]),
    }  # fmt: skip
    assert read.warnings == ()


# Scripts of every construct, beside what bash itself makes of them.

KNOWN = ("A", "B", "C")
OPEN = ("X", "Y")
"""Variables that a script never sets: they hang on who starts it."""
SMALL = st.integers(0, 9).map(str)
NAMED = st.sampled_from(KNOWN)
ANY = st.sampled_from((*KNOWN * 9, *OPEN))
VALUE = st.sampled_from(("1", "2", "8", "a", "ab", "a-b", "a,b", "x y"))


@st.composite
def words(draw: st.DrawFn) -> str:
    """A word that a shell expands."""
    name, value, number = draw(ANY), draw(VALUE.filter(lambda v: " " not in v)), draw(SMALL)
    return draw(
        st.sampled_from(
            (
                value, f'"${name}"', f"${name}", f"${{{name}:-{value}}}", f'"${{{name}:+{value}}}"',
                f"$(( ${{{name}:-0}} ? {number} : 2 ))" if name in OPEN else f"$(( {number} * 2 + 1 ))",
                f"${{#{name}}}", f'"${{{name}%b}}"', f'"${{{name}#a}}"', f'"${{{name}/a/c}}"',
                f'"${{{name}^^}}"', f"$(echo {value}{number})", f'"$(printf "%s-%d" {value} {number})"',
                f"$(seq 1 {number})", f"{{{value},{number}}}", f"{value}{{1..3}}",
                f'"$(basename /x/{value}.sh .sh)"', f"$(echo {value} | tr a b)",
                "$(echo a b c | wc -w)", '"${L[@]}"', "${L[0]}", "${#L[@]}", f'"$(go {value})"',
                f"`echo {number}`", f'"${{{name}:0:1}}"',
            )
        )
    )  # fmt: skip


@st.composite
def conditions(draw: st.DrawFn) -> str:
    name, value, number = draw(ANY), draw(VALUE), draw(SMALL)
    return draw(
        st.sampled_from(
            (
                f'[ "${name}" = "{value}" ]', f'[[ ${name} == "{value}" ]]', f'[ -z "${name}" ]',
                f'[[ -n ${name} ]]', f"[[ ${name} == a* ]]", f'[ "${{{name}:-1}}" != 1 ]',
                f"(( {number} > 4 ))", f'[ {number} -ge 3 ] && [ "${name}" != x ]', "true", "false",
                f'! [ "${name}" = {number} ]', f'[ "${name}" = 1 ] || [ "${name}" = a ]',
                f"[[ ${{#{name}}} -gt 1 ]]", f"test {number} -lt 5",
            )
        )
    )  # fmt: skip


def statements(depth: int) -> st.SearchStrategy[str]:
    @st.composite
    def one(draw: st.DrawFn) -> str:
        name, word, other = draw(NAMED), draw(words()), draw(words())
        simple = [
            f"{name}={word}",
            f"{name}+={other}",
            f"L=({word} {other})",
            f"L+=({word})",
            f"export {name}={word}",
            f": ${{{name}:={draw(SMALL)}}}",
            f"(( N += {draw(SMALL)} ))",
            "N=$(( N + 1 ))",
            "shift",
            f'read -r {name} B <<< "{draw(VALUE)}"',
            f"set -- {word} {other}",
            f"{name}=$1",
            f"unset {name}",
            f"local_ {word}",
            f"go {word} > /dev/null",
            f"{name}=$(go {word})",
            "declare -a L",
        ]
        if depth <= 0:
            return draw(st.sampled_from(simple))
        body, orelse = draw(block(depth - 1)), draw(block(depth - 1))
        test = draw(conditions())
        return draw(
            st.sampled_from(
                (
                    *simple[:6],
                    f"if {test}; then\n{body}\nelse\n{orelse}\nfi",
                    f"if {test}; then\n{body}\nfi",
                    f"if {test}; then {body}\nelif {draw(conditions())}; then\n{orelse}\nfi",
                    f"case {word} in a*|1) {body};; 2) {orelse};; *) :;; esac",
                    f"for {name} in {word} {other}; do\n{body}\ndone",
                    f"for (( N = 0; N < {draw(st.integers(0, 3))}; N++ )); do\n{body}\ndone",
                    f"M=0; while [ $M -lt 2 ]; do M=$((M + 1))\n{body}\ndone",
                    f"until {test}; do\n{body}\nbreak\ndone",
                    f"{test} && {name}={word}", f"{test} || {name}={word}",
                    f"{{ {body}\n}}", f"( {body}\n)", f"{test} && {{ {body}\n}} || {{ {orelse}\n}}",
                    f"f{depth}() {{ {body}\n}}\nf{depth} {word}",
                    f"if {test}; then vllm serve m -q {word}; fi",
                    f"{test} && exit 0", f"cat > /dev/null <<EOF\n${name} {word}\nEOF",
                    f'eval "{name}={draw(SMALL)}"', f"B={word} vllm serve m \"$B\"",
                )
            )
        )  # fmt: skip

    return one()


def block(depth: int) -> st.SearchStrategy[str]:
    return st.lists(statements(depth), min_size=1, max_size=3).map("\n".join)


BEGIN = 'go() { echo "g$1"; }\nlocal_() { local Q="$1"; A="$Q"; }\nA=1 B=ab C=x\nL=(p q)\nN=0\n'
END = '\nvllm serve m $A "$B" "${L[@]}" --x="$C" -n $N $1\n'


def as_bash(text: str, env: dict[str, str]) -> list[str] | None:
    """The words of the first engine that bash starts; None where it starts none."""
    stub = "exec 2> /dev/null 3>&1 > /dev/null\nvllm() { printf '%s\\0' \"$@\" >&3; kill -9 $$; }\n"
    done = subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-c", stub + text],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **env},
        capture_output=True,
        timeout=5,
        check=False,
    )
    said = done.stdout.split(b"\0")[:-1]
    return [word.decode() for word in said] if said else None


def followed(text: str, settings: dict[str, str]) -> list[Start] | None:
    """What is started; None where it is refused."""
    try:
        return list(script_starts(text, settings))
    except KvroomError as error:
        assert error.fix
        return None


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
@settings(max_examples=SCRIPTS, deadline=None)
@given(
    text=block(2).map(lambda body: f"{BEGIN}{body}{END}"),
    env=st.dictionaries(st.sampled_from(OPEN), VALUE, max_size=2),
)
def test_what_is_answered_is_what_bash_does(text: str, env: dict[str, str]) -> None:
    starts = followed(text, env)
    if starts is None:
        return
    first = next(iter(starts), None)
    words_of = None if first is None else ["serve", *first.words]
    if first is not None and (first.notes or any("$" in word for word in first.words)):
        return  # what it hangs on is said, or asked
    assert words_of == as_bash(text, env)


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"touch {mark}; $(touch {mark}) `touch {mark}`; eval 'touch {mark}'; bash -c 'touch {mark}'\n"
    for script in (text, f"A=$(touch {mark})\nvllm serve m $A", f"vllm serve m < <(touch {mark})"):
        followed(script, {})
    assert not mark.exists()
