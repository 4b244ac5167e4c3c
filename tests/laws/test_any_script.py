"""Any script is followed to a command or an error: nothing hangs, nothing else is raised."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command

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


@settings(max_examples=1_500, deadline=5_000)
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


@settings(max_examples=300, deadline=None)
@given(assignments())
def test_what_is_known_is_as_a_shell_has_it(made: tuple[str, dict[str, str]]) -> None:
    text, values = made
    read = read_command(f"{text}\nvllm serve m -tp $A --max-num-seqs $B --block-size $C")
    assert read.keys["tp"] == int(values["A"])
    assert read.keys["engine_args"] == {
        "max_num_seqs": int(values["B"]), "block_size": int(values["C"]),
    }  # fmt: skip
    assert read.warnings == ()
