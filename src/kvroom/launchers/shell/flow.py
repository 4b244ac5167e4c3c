"""What a script does in which order: lists, conditions, loops, branches on a copy of its variables.

Conditions are evaluated where the values that they read are known. Where they are not, a variable without a
value counts as empty, as it is in a shell; what the script would have done otherwise is looked at on a copy,
and said of every variable that it would have set and of every command that it would have started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from kvroom.errors import KvroomError, shortened
from kvroom.launchers.shell.arithmetic import NotKnown
from kvroom.launchers.shell.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    TestOutcome,
    pattern_matches,
)
from kvroom.launchers.shell.expand import Expander
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
FIX = "Give the part that starts the engine."


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


class ScriptEnd(Exception):
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
class PrintedText:
    """What a substitution's commands print, and what to know of how it came about."""

    text: list[str]
    notes: list[str]


@dataclass
class ScriptFlow:
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
    cards: int | None = None
    ended: str = ""
    unread: list[str] = field(default_factory=list)
    printing: PrintedText | None = None
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
        except ScriptEnd as error:
            last = error.where
        except RecursionError:
            raise KvroomError("--from-command", text, "is nested too deep", FIX) from None
        self.ended = last
        return self.commands or self.possible

    def _run(self, node: Node) -> TestOutcome:
        self.steps -= 1
        if self.steps < 0:
            raise KvroomError(
                "--from-command", "its loops", "run longer than any launch script", FIX
            )
        if self.depth > MAX_DEPTH:
            raise KvroomError("--from-command", node.source, "is nested too deep", FIX)
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
                    self.printing, self.piped = PrintedText([], printing.notes), text
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
        self.printing, self.piped = PrintedText([], []), None
        try:
            self._run(parse(text))
        except ScriptEnd as error:
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
            raise ScriptEnd("unknown")

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
        except ScriptEnd as error:
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
            raise ScriptEnd(taken.end, taken.where)

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
            raise ScriptEnd(taken.end, taken.where)

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
        except ScriptEnd as error:
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

    def _simple(self, node: SimpleCommand) -> TestOutcome:
        """Do a simple command."""
        raise NotImplementedError(node.source)


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


def _shown(value: Value) -> str:
    text = value if isinstance(value, str) else " ".join(value)
    return text if text and len(text) <= 40 and text.isprintable() else shortened(text)
