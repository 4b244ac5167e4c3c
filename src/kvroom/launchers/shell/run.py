"""Following a script as a shell would, without running anything: its simple commands.

Assignments, what programs that only print would say, files that are written or sourced, functions; the
commands that may start an engine are kept with all that they see.
"""

from __future__ import annotations

import re

from kvroom.errors import shortened
from kvroom.launchers.shell.conditions import FALSE, TRUE, UNKNOWN, TestCommand, TestOutcome
from kvroom.launchers.shell.expand import Expander
from kvroom.launchers.shell.flow import MAX_DEPTH, ScriptEnd, ScriptFlow, ShellCommand
from kvroom.launchers.shell.printed import PRINTERS, printed
from kvroom.launchers.shell.scan import ASSIGNMENT
from kvroom.launchers.shell.syntax import ArithmeticCommand, Node, Redirection, SimpleCommand, parse
from kvroom.launchers.shell.variables import Value

MOST_SOURCED = 16
DECLARATIONS = frozenset(("export", "declare", "typeset", "local", "readonly"))
_SILENT = frozenset(
    (":", "true", "set", "shopt", "trap", "umask", "ulimit", "wait", "echo", "printf")
)
_LISTS_CARDS = re.compile(
    r"(?:-L|--list-gpus|--query-gpu=(?:name|index|uuid) --format=csv,noheader)$"
)
"""What lists the machine's cards, a line each."""
_ACTIVATES = re.compile(r"(?:^|/)(?:activate|conda\.sh|\.?bashrc|\.?profile|setvars\.sh)$")
"""Files that set a shell up, and nothing of an engine."""


class Shell(ScriptFlow):
    """Follows scripts: ``run`` gives the commands that are wanted."""

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
            raise ScriptEnd(name, f"{' '.join(words)} on line {line}")
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
        if self.printing is not None and name in ("nvidia-smi", "rocm-smi") and self.cards:
            self._certain(certain=_LISTS_CARDS.search(" ".join(words)) is not None)
            self.printing.text.append("".join(f"GPU {n}: card\n" for n in range(self.cards)))
            return TRUE
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
            if not _ACTIVATES.search(name):
                self.unread.append(shortened(name))
            return UNKNOWN
        before = self.sourced_on
        self.sourced_on = line
        try:
            return self._run(parse(text))
        except ScriptEnd as error:
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
        except ScriptEnd as error:
            if error.kind != "return":
                raise
            return UNKNOWN
        finally:
            self.variables.arguments = before


def _appended(before: Value | None, value: Value) -> Value:
    if isinstance(value, list):
        return [*([before] if isinstance(before, str) else before or []), *value]
    if isinstance(before, list):
        return [(before[0] if before else "") + value, *before[1:]]
    return (before or "") + value
