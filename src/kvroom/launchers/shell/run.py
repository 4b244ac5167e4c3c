"""Following a script as a shell would, without running anything.

Conditions are evaluated where the values that they read are known. Where they are not, a variable without a
value counts as empty, as it is in a shell; what the script would have done otherwise is looked at on a copy,
and said of every variable that it would have set and of every command that it would have started.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field, replace

from kvroom.errors import KvroomError, shortened
from kvroom.launchers.shell.arithmetic import NotKnown
from kvroom.launchers.shell.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    TestCommand,
    TestOutcome,
    pattern_matches,
)
from kvroom.launchers.shell.expand import Expander
from kvroom.launchers.shell.printed import PRINTERS, printed
from kvroom.launchers.shell.scan import ASSIGNMENT
from kvroom.launchers.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Case,
    CommandGroup,
    CommandList,
    ForLoop,
    Function,
    If,
    Node,
    Pipeline,
    Redirection,
    SimpleCommand,
    WhileLoop,
    parse,
)
from kvroom.launchers.shell.variables import Output, Value, Variables
from kvroom.records import dataclass

MAX_STEPS = 20_000
MAX_DEPTH = 60
MAX_TURNS = 1_000
MOST_STARTS = 16
"""Starts of one loop that are followed."""
MOST_SOURCED = 16
DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_SILENT = frozenset(
    (":", "true", "set", "shopt", "trap", "umask", "ulimit", "wait", "echo", "printf")
)
_FIX = "Give the part that starts the engine."


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command that is run: its ``words``, the ``line`` it stands on, the ``variables`` that it sees, what
    to know of how it came to this (``notes``), what it reads from a here-document (``standard_input``);
    ``hidden`` are variables that the script has and does not export."""

    words: list[str]
    line: int
    variables: dict[str, str]
    notes: tuple[str, ...] = ()
    standard_input: str | None = None
    hidden: tuple[str, ...] = ()


class _Ends(Exception):
    """The script ends here, or a function (``kind`` return), a loop (break, continue), or what can be told
    of a substitution (unknown); ``where`` is what ended it."""

    def __init__(self, kind: str, where: str = "") -> None:
        super().__init__(kind)
        self.kind, self.where = kind, where


@dataclass(slots=True)
class _Branch:
    """What a part of the script does on a copy of the variables; ``end`` is the word that ended it."""

    variables: Variables
    commands: list[ShellCommand]
    possible: list[ShellCommand]
    files: dict[str, str]
    end: str
    where: str


@dataclass(slots=True)
class _Printed:
    """What a substitution's commands print, and what to know of how it came about."""

    text: list[str]
    notes: list[str]


@dataclass
class Shell:
    """Follows scripts. ``wanted`` says which commands (words, the text they read) are kept; ``commands`` are
    those that are run, ``possible`` those that are where a condition holds that is not known to, ``files``
    what is written. ``read`` gives the text of a file that is sourced, None where there is none; ``ended``
    is the ``exit`` that ended the script, ``printing`` what is gathered within ``$(…)``."""

    variables: Variables
    wanted: Callable[[list[str], str | None], bool]
    files: dict[str, str] = field(default_factory=dict)
    commands: list[ShellCommand] = field(default_factory=list)
    possible: list[ShellCommand] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    file_notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    read: Callable[[str], str | None] | None = None
    ended: str = ""
    unread: list[str] = field(default_factory=list)
    printing: _Printed | None = None
    piped: str | None = None
    exports_all: bool = False
    may_end: bool = False
    sourced: int = 0
    sourced_on: int = 0
    steps: int = MAX_STEPS
    depth: int = 0

    def run(self, text: str) -> list[ShellCommand]:
        """The commands of ``text`` that are wanted; KvroomError where it cannot be followed."""
        self.variables.outputs = self._output
        last = ""
        try:
            self._run(parse(text))
        except _Ends as error:
            last = error.where
        except RecursionError:
            raise KvroomError("--from-command", text, "is nested too deep", _FIX) from None
        self.ended = last
        return self.commands or self.possible

    def _run(self, node: Node) -> TestOutcome:
        self.steps -= 1
        if self.steps < 0:
            raise KvroomError(
                "--from-command", "its loops", "run longer than any launch script", _FIX
            )
        if self.depth > MAX_DEPTH:
            raise KvroomError("--from-command", node.source, "is nested too deep", _FIX)
        self.depth += 1
        try:
            return self._dispatch(node)
        finally:
            self.depth -= 1

    def _dispatch(self, node: Node) -> TestOutcome:
        match node:
            case CommandList():
                outcome = TRUE
                for item in node.items:
                    outcome = self._run(item)
                return outcome
            case SimpleCommand():
                return self._simple(node)
            case ArithmeticCommand():
                return self._arithmetic(node)
            case Pipeline():
                return self._pipeline(node)
            case AndOr():
                return self._and_or(node)
            case If():
                self._if(node, 0)
            case Case():
                self._case(node)
            case ForLoop():
                self._for(node)
            case WhileLoop():
                self._while(node)
            case Function():
                self.functions[node.name] = node.body
            case CommandGroup():
                return self._group(node)
        return UNKNOWN

    def _pipeline(self, node: Pipeline) -> TestOutcome:
        outcome, printing, before = UNKNOWN, self.printing, self.variables
        alone = len(node.commands) == 1
        text: str | None = None
        try:
            for command in node.commands:
                if not alone:
                    self.variables = before.copy()
                if printing is not None and not alone:
                    self.printing, self.piped = _Printed([], printing.notes), text
                outcome = self._run(command)
                if self.printing is not None and not alone:
                    text = "".join(self.printing.text)
        finally:
            self.printing, self.piped = printing, None
            if not alone:
                self.variables = before
        if printing is not None and text is not None:
            printing.text.append(text)
        return outcome.negated() if node.negated else outcome

    def _output(self, text: str) -> Output | None:
        """What the commands of ``text`` print; None where only a run could tell."""
        if self.depth > MAX_DEPTH // 2:
            return None
        before = self.variables, self.printing, self.piped
        self.variables = self.variables.copy()
        self.printing, self.piped = _Printed([], []), None
        try:
            self._run(parse(text))
        except _Ends as error:
            if error.kind == "unknown":
                return None
        except KvroomError:
            return None
        finally:
            gathered = self.printing
            self.variables, self.printing, self.piped = before
        return "".join(gathered.text).rstrip("\n"), tuple(dict.fromkeys(gathered.notes))

    def _certain(self, certain: bool) -> None:
        """Within a substitution what is not certain is not told."""
        if self.printing is not None and not certain:
            raise _Ends("unknown")

    # What may or may not be done

    def _branch(self, node: Node | None) -> _Branch:
        """What ``node`` does, on a copy."""
        before = self.variables, self.commands, self.possible, self.files
        self.variables, self.commands, self.possible = self.variables.copy(), [], []
        self.files = dict(self.files)
        end = where = ""
        try:
            if node is not None:
                self._run(node)
        except _Ends as error:
            end, where = error.kind, error.where
        branch = _Branch(self.variables, self.commands, self.possible, self.files, end, where)
        self.variables, self.commands, self.possible, self.files = before
        return branch

    def _choose(
        self, yes: Node | None, no: Node | None, outcome: TestOutcome, condition: str
    ) -> None:
        """Do ``yes`` or ``no`` by an outcome; where it is not certain, say what the other would do."""
        if outcome.certain:
            chosen = yes if outcome.holds else no
            if chosen is not None:
                self._run(chosen)
            return
        holds = bool(outcome.holds)
        self._certain(certain=False)
        branches = (self._branch(no), self._branch(yes))
        taken, other = branches[holds], branches[not holds]
        self.may_end = self.may_end or (not taken.end and other.end in ("break", "return", "exit"))
        if taken.end in ("exit", "return") and not taken.commands and not other.end:
            taken, other, holds = other, taken, not holds  # a script that ends there starts nothing
        self._say(taken, other, condition, holds)
        how = "if" if holds else "unless"
        note = f"started {how} {condition}"
        self.commands += [
            replace(command, notes=(*command.notes, note)) for command in taken.commands
        ]
        contrary = f"started {'unless' if holds else 'if'} {condition}: taken so"
        self.possible += [
            *taken.possible,
            *(replace(command, notes=(*command.notes, contrary)) for command in other.commands),
            *other.possible,
        ]  # fmt: skip
        self.variables, self.files = taken.variables, taken.files
        if taken.end:
            raise _Ends(taken.end, taken.where)

    def _say(self, taken: _Branch, other: _Branch, condition: str, holds: bool) -> None:
        """Note what the other branch would have made of the variables."""
        if other.end == "exit" and not other.commands:
            return
        here, there = taken.variables, other.variables
        for name in here.values.keys() | there.values.keys():
            mine, theirs = here.values.get(name), there.values.get(name)
            if mine == theirs:
                continue
            now = "not set" if mine is None else _shown(mine)
            if theirs is None:
                how = "holds" if holds else "does not hold"
                note = f"{name} is taken as {now}, as {condition} {how} by what is known"
            else:
                how = "unless" if holds else "if"
                note = f"{name} is {_shown(theirs)} {how} {condition}; taken as {now}"
            here.notes[name] = (*here.notes.get(name, ()), note)[-8:]

    def _if(self, node: If, at: int) -> None:
        condition, body = node.branches[at]
        outcome = self._run(condition)
        rest = node.otherwise
        if at + 1 < len(node.branches):
            later: Node = If(node.branches[at + 1 :], node.otherwise, node.source)
        else:
            later = rest
        self._choose(body, later, outcome, condition.source)

    def _and_or(self, node: AndOr) -> TestOutcome:
        outcome = self._run(node.first)
        condition, last = node.first.source, node.first
        for sign, following in node.rest:
            if outcome.holds is None and not _is_test(last):  # a program, which is taken to succeed
                if sign == "&&":
                    outcome = self._run(following)
                else:
                    self._choose(None, following, TestOutcome(True, False), condition)
            elif outcome.certain:
                if outcome.holds == (sign == "&&"):
                    outcome = self._run(following)
            elif _is_test(following):
                other = self._run(following)
                outcome = _joined(outcome, other, sign)
            else:
                yes, no = (following, None) if sign == "&&" else (None, following)
                self._choose(yes, no, outcome, condition)
            condition, last = f"{condition} {sign} {following.source}"[:200], following
        return outcome

    def _case(self, node: Case) -> None:
        expander = Expander(self.variables, empty=True)
        value = expander.text(node.word)
        certain = not (expander.missing or expander.opaque or expander.notes)
        chosen: CommandList | None = None
        for patterns, body in node.items:
            for typed in patterns:
                if pattern_matches(typed, Expander(self.variables, empty=True).text(typed), value):
                    chosen = body
                    break
            if chosen is not None:
                break
        if certain:
            if chosen is not None:
                self._run(chosen)
            return
        self._alternatives(node, chosen)

    def _alternatives(self, node: Case, chosen: CommandList | None) -> None:
        """A ``case`` whose word is not known: what is taken, and what every other pattern would do."""
        self._certain(certain=False)
        taken = self._branch(chosen)
        others = [(p, self._branch(b)) for p, b in node.items if b is not chosen]
        if taken.end == "exit" and not taken.commands:
            taken = self._branch(None)
        for patterns, other in others:
            condition = f"{node.word} is {' or '.join(patterns)}"
            self._say(taken, other, condition, holds=False)
            note = f"started if {condition}: taken so"
            self.possible += [
                replace(command, notes=(*command.notes, note)) for command in other.commands
            ]
            self.possible += other.possible
        note = f"started as {node.word} is not known"
        self.commands += [
            replace(command, notes=(*command.notes, note)) for command in taken.commands
        ]
        self.possible += taken.possible
        self.variables, self.files = taken.variables, taken.files
        if taken.end:
            raise _Ends(taken.end, taken.where)

    # Loops

    def _for(self, node: ForLoop) -> None:
        expander = Expander(self.variables)
        values = expander.fields(('"$@"',) if node.words is None else node.words)
        if node.name in self.variables.settings and (expander.missing or expander.opaque):
            values = [self.variables.settings[node.name]]
        self._certain(certain=not (expander.missing or expander.opaque))
        if not values:
            if node.words is None or expander.missing:
                self._choose(node.body, None, TestOutcome(False, False), f"for {node.name}")
            return
        notes = tuple(dict.fromkeys(expander.notes))
        each = shortened(" ".join(values))
        starts = 0
        for value in values[:MAX_TURNS]:
            before = len(self.commands)
            self.variables.put(node.name, value, notes)
            goes_on = self._turn(node.body)
            if len(self.commands) > before:
                starts += 1
                if len(values) > 1:
                    note = f"{node.name} takes each of {each}: here {shortened(value)}"
                    self.commands[before:] = [
                        replace(command, notes=(*command.notes, note))
                        for command in self.commands[before:]
                    ]
            if not goes_on or starts == MOST_STARTS:
                return

    def _turn(self, body: Node) -> bool:
        """One turn of a loop: whether there is another."""
        try:
            self._run(body)
        except _Ends as error:
            if error.kind not in ("break", "continue"):
                raise
            return error.kind == "continue"
        return True

    def _while(self, node: WhileLoop) -> None:
        for _ in range(MAX_TURNS):
            before, values = len(self.commands), dict(self.variables.values)
            self.may_end = False
            outcome = self._run(node.condition)
            outcome = outcome.negated() if node.negated else outcome
            if not outcome.certain:
                holds = TestOutcome(bool(outcome.holds), False)
                self._choose(node.body, None, holds, f"while {node.condition.source}")
                return
            if not outcome.holds or not self._turn(node.body) or len(self.commands) > before:
                return
            if self.may_end or values == self.variables.values:
                return  # it waits for what only a run could tell

    # Commands

    def _group(self, node: CommandGroup) -> TestOutcome:
        if not node.subshell:
            return self._run(node.body)
        branch = self._branch(node.body)
        self.commands += branch.commands
        self.possible += branch.possible
        self.files = branch.files
        return UNKNOWN

    def _arithmetic(self, node: ArithmeticCommand) -> TestOutcome:
        expander = Expander(self.variables, empty=True)
        try:
            value = expander.number(
                expander.text(f'"{node.text}"') if '"' not in node.text else node.text
            )
        except NotKnown:
            return UNKNOWN
        if expander.opaque:
            return UNKNOWN
        return TestOutcome(value != 0, not (expander.missing or expander.notes))

    def _assign_one(self, word: str) -> None:
        expander = Expander(self.variables)
        assignment = expander.assigned(word)
        if assignment is None:
            return
        name, value, append = assignment
        self._certain(certain=not (expander.missing or expander.opaque))
        if self.exports_all:
            self.variables.exported |= {name}
        notes = tuple(dict.fromkeys(expander.notes))
        if append:
            notes = (*self.variables.notes.get(name, ()), *notes)
            value = _appended(self.variables.get(name), value)
        setting = self.variables.settings.get(name)
        if setting is not None and (expander.opaque or expander.missing):
            return  # what the script would assign cannot be told: the value that was given for it holds
        own = not re.search(rf"\b{name}\b", word[len(name) :])
        if own and setting not in (None, value) and name not in self.variables.values:
            notes = (*notes, f"the script itself sets {name}: --set {name}={setting} does not hold")
        self.variables.put(name, value, notes[-8:])
        if (
            isinstance(value, str)
            and expander.opaque
            and value.startswith("$(")
            and value.endswith(")")
        ):
            self.variables.computed |= {name}

    def _simple(self, node: SimpleCommand) -> TestOutcome:
        expander = Expander(self.variables)
        if node.words[:1] in (("[",), ("test",), ("[[",)):
            return self._test(list(node.words))
        at = 0
        while at < len(node.words) and ASSIGNMENT.match(node.words[at]):
            at += 1
        if at == len(node.words):
            for word in node.words:
                self._assign_one(word)
            return TRUE
        own = [match[1] for word in node.words[:at] if (match := ASSIGNMENT.match(word))]
        state = self.variables
        before = {
            name: (state.values.get(name), state.notes.get(name), name in state.exported)
            for name in own
        }
        set_already = [
            word for name, word in zip(own, node.words, strict=False) if before[name][0] is not None
        ]
        for word in node.words[:at]:
            if word not in set_already:
                self._assign_one(word)
        words = expander.fields(node.words[at:])
        for word in set_already:  # the words are expanded before: they have the value of before
            self._assign_one(word)
        self.variables.exported |= frozenset(own)
        try:
            body = self._redirect(node.redirections, words)
            return self._command(words, node.words[at:], expander, node, body) if words else TRUE
        finally:
            for name, (value, notes, exported) in before.items():
                self.variables.drop(name)
                if value is not None:
                    self.variables.put(name, value, notes or ())
                if exported:
                    self.variables.exported |= {name}

    def _test(self, words: list[str]) -> TestOutcome:
        inner = words[1:]
        if words[0] != "test" and inner and inner[-1] in ("]", "]]"):
            inner.pop()
        return TestCommand(inner, self.variables, double=words[0] == "[[").outcome()

    def _redirect(self, redirections: tuple[Redirection, ...], words: list[str]) -> str | None:
        """Keep the file that ``cat`` or ``tee`` writes; the text that the command reads."""
        body, target, adds = None, "", False
        notes: tuple[str, ...] = ()
        for redirection in redirections:
            if redirection.body is not None:
                expander = Expander(self.variables)
                body = (
                    redirection.body
                    if redirection.literal
                    else expander.here_document(redirection.body)
                )
                notes = () if redirection.literal else tuple(expander.notes)
            elif redirection.sign in (">", ">>", ">|"):
                target, adds = (
                    Expander(self.variables).text(redirection.target),
                    redirection.sign == ">>",
                )
            elif redirection.sign == "<<<":
                expander = Expander(self.variables)
                body = expander.text(redirection.target)
                body = None if expander.missing or expander.opaque else f"{body}\n"
            elif redirection.sign == "<" and redirection.target.startswith("<("):
                output = self._output(redirection.target[2:-1])
                body = None if output is None else f"{output[0]}\n"
        if words[:1] == ["tee"] or words[:2] == ["sudo", "tee"]:
            target = next(
                (word for word in words[1:] if word != "tee" and not word.startswith("-")), target
            )
        if body is not None and target and words[:1] != ["bash"]:
            self.file_notes[target] = (*self.file_notes.get(target, ()), *notes)
            self.files[target] = (self.files.get(target, "") if adds else "") + body
            return None
        if target and words[:1] in (["echo"], ["printf"]):
            text = printed(words, None)
            if text is not None:
                self.files[target] = (self.files.get(target, "") if adds else "") + text
            words[:] = ["true"]  # nothing of it is on standard output
        elif self.printing is not None and any(
            redirection.sign == ">&" and redirection.target == "2" for redirection in redirections
        ):
            words[:] = ["true"] if words[:1] in (["echo"], ["printf"]) else words
        return body

    def _command(
        self,
        words: list[str],
        typed: tuple[str, ...],
        expander: Expander,
        node: SimpleCommand,
        body: str | None,
    ) -> TestOutcome:
        name = words[0]
        line = self.sourced_on or node.line
        if self.printing is not None:
            self._certain(certain=not (expander.missing or expander.opaque))
            self.printing.notes += expander.notes
        if name in ("exit", "return", "break", "continue"):
            raise _Ends(name, f"{' '.join(words)} on line {line}")
        if name in DECLARATIONS:
            return self._declare(typed)
        if name in ("[", "test"):
            return self._test(words)
        if name in self.functions and self.depth < MAX_DEPTH:
            return self._call(self.functions[name], words[1:])
        if name in ("source", "."):
            return self._source(words[1:], line)
        if name == "eval":
            return self._run(parse(" ".join(words[1:]), line))
        if name == "let":
            return self._arithmetic(ArithmeticCommand(" ".join(words[1:]), " ".join(words)))
        if name == "set":
            self._set(words, typed)
        elif name == "shift":
            many = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1
            self.variables.arguments = self.variables.arguments[many:]
        elif name in ("read", "mapfile", "readarray"):
            self._read(words, self.piped if body is None else body)
        elif name in ("unset", "getopts"):
            for word in words[1:]:
                self.variables.drop(word)
        if self.printing is not None and name in PRINTERS:
            text = printed(words, self.piped if body is None else body)
            self._certain(certain=text is not None)
            self.printing.text.append(text or "")
            return TRUE
        if name == "false":
            return FALSE
        if name in _SILENT:
            return TRUE
        self._certain(certain=name in ("unset", "read", "shift", "mapfile", "readarray"))
        if self.wanted(words, body or self._script(words)):
            self.commands.append(self._wanted(words, expander, line, body))
        return UNKNOWN

    def _wanted(
        self, words: list[str], expander: Expander, line: int, body: str | None
    ) -> ShellCommand:
        """A command that is kept, with what it sees."""
        texts = self._texts()
        seen = self.variables.exported | frozenset(self.variables.settings)
        notes = [
            *expander.notes,
            *(
                note
                for key, value in self.file_notes.items()
                if any(key in word for word in words)
                for note in value
            ),
            *(
                f"{name} is sourced, and not read: what it sets is not known"
                for name in self.unread
            ),
        ]
        return ShellCommand(
            words,
            line,
            {
                key: texts[key]
                for key in texts
                if key in seen and key not in self.variables.computed
            },
            tuple(dict.fromkeys(notes)),
            body or self._script(words),
            tuple(key for key in texts if key not in seen),
        )

    def _declare(self, typed: tuple[str, ...]) -> TestOutcome:
        options = "".join(word[1:] for word in typed[1:] if word.startswith("-"))
        for word in typed[1:]:
            self._assign_one(word)
            if typed[0] == "export" or "x" in options:
                self.variables.exported |= {re.split(r"[+=\[]", word)[0]}
        return TRUE

    def _set(self, words: list[str], typed: tuple[str, ...]) -> None:
        if "--" in words:
            self.variables.arguments = words[words.index("--") + 1 :]
        if re.search(r"(?:^| )-[a-z]*a\b|-o allexport", " ".join(words[1:])):
            self.exports_all = True
        elif "+a" in words:
            self.exports_all = False
        for word in typed[1:]:  # as Windows sets a variable
            self._assign_one(word)

    def _read(self, words: list[str], body: str | None) -> None:
        """``read`` and ``mapfile`` of a text that is known; else their variables have no value."""
        names = [word for word in words[1:] if not word.startswith("-")]
        options = "".join(word[1:] for word in words[1:] if word.startswith("-"))
        if body is None or set(options) - set("rat"):
            for name in names:
                self.variables.drop(name)
            return
        if words[0] != "read":
            if names:
                self.variables.put(names[0], body.splitlines())
            return
        separators = self.variables.text("IFS") or " \t\n"
        line = body.partition("\n")[0]
        parts = [part for part in re.split(f"[{re.escape(separators)}]", line) if part]
        if "a" in options and names:
            self.variables.put(names[0], parts)
            return
        for at, name in enumerate(names):
            last = at == len(names) - 1
            rest = separators[0].join(parts[at:]) if last else "".join(parts[at : at + 1])
            self.variables.put(name, rest)

    def _source(self, words: list[str], line: int) -> TestOutcome:
        """Follow a file that is sourced, where it can be read."""
        name = words[0] if words else ""
        text = self.files.get(name)
        self.sourced += 1
        if text is None and self.read is not None and self.sourced <= MOST_SOURCED:
            text = self.read(name)
        if text is None:
            self._certain(certain=False)
            self.unread.append(shortened(name))
            return UNKNOWN
        before = self.sourced_on
        self.sourced_on = line
        try:
            return self._run(parse(text))
        except _Ends as error:
            if error.kind != "return":
                raise
            return UNKNOWN
        finally:
            self.sourced_on = before

    def _script(self, words: list[str]) -> str | None:
        """The text of a script that this one has written, and runs."""
        for word in words[:3]:
            if word in self.files or word.removeprefix("./") in self.files:
                return self.files.get(word, self.files.get(word.removeprefix("./")))
        return None

    def _texts(self) -> dict[str, str]:
        """Every variable as one text, those of ``--set`` over them."""
        texts = {
            key: " ".join(value) if isinstance(value, list) else value
            for key, value in self.variables.values.items()
        }
        return {**self.variables.settings, **texts}

    def _call(self, body: Node, arguments: list[str]) -> TestOutcome:
        before = self.variables.arguments
        self.variables.arguments = arguments
        try:
            return self._run(body)
        except _Ends as error:
            if error.kind != "return":
                raise
            return UNKNOWN
        finally:
            self.variables.arguments = before


def _is_test(node: Node) -> bool:
    """Whether ``node`` only tests."""
    if isinstance(node, Pipeline):
        return all(map(_is_test, node.commands))
    if isinstance(node, SimpleCommand):
        return node.words[:1] in (("[",), ("test",), ("[[",))
    return isinstance(node, ArithmeticCommand) and "=" not in node.text.replace("==", "")


def _joined(first: TestOutcome, second: TestOutcome, sign: str) -> TestOutcome:
    one_holds, this_holds = first.holds, second.holds
    if sign == "&&":
        holds = (
            False
            if False in (one_holds, this_holds)
            else None
            if None in (one_holds, this_holds)
            else True
        )
        certain = FALSE in (first, second)
    else:
        holds = (
            True
            if True in (one_holds, this_holds)
            else None
            if None in (one_holds, this_holds)
            else False
        )
        certain = TRUE in (first, second)
    return TestOutcome(holds, certain or (first.certain and second.certain))


def _appended(before: Value | None, value: Value) -> Value:
    if isinstance(value, list):
        return [*([before] if isinstance(before, str) else before or []), *value]
    if isinstance(before, list):
        return [(before[0] if before else "") + value, *before[1:]]
    return (before or "") + value


def _shown(value: Value) -> str:
    text = value if isinstance(value, str) else " ".join(value)
    return text if text and len(text) <= 40 and text.isprintable() else shortened(text)
