"""A shell's text as a tree: lists, pipelines, conditions, loops, functions, simple commands.

Words stay as they are typed. What cannot be a shell's (a stray ``fi`` or ``)``) is passed over, and what is
not closed ends with the text: people paste parts of scripts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import field
from typing import TypeAlias

from kvroom.errors import KvroomError
from kvroom.launchers.shell.scan import (
    BLANKS,
    METACHARACTERS,
    continued,
    past,
    word_end,
)
from kvroom.records import dataclass

MAX_NESTING = 40
_OPERATORS = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()]")
_REDIRECTION = re.compile(r"(?:\d*|\{\w+\})(?:<<<|<<-|<<|<>|<&|>>|>&|>\||<|>)|&>>|&>")
_RESERVED_STARTS = frozenset(
    ("if", "then", "elif", "else", "do", "while", "until", "{", "!", "time")
)
_COMPARISON_STOPS = frozenset(" \t\r\n;")
_NAME = re.compile(r"[A-Za-z_][\w.:-]*")


@dataclass(slots=True)
class Token:
    """A word, an operator, a redirection, an arithmetic command, a new line; ``at`` in the text."""

    kind: str
    text: str
    at: int
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Redirection:
    """``sign`` and ``target`` as typed; a here-document has a ``body``, taken as it is if ``literal``."""

    sign: str
    target: str
    body: str | None = None
    literal: bool = False


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Words as typed, with its redirections."""

    words: tuple[str, ...]
    redirections: tuple[Redirection, ...]
    line: int
    source: str


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    """``(( … ))``."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands one into the other; ``negated`` by ``!``."""

    commands: tuple[Node, ...]
    negated: bool
    source: str


@dataclass(frozen=True, slots=True)
class AndOr:
    """``first``, then what runs if it succeeds (``&&``) or fails (``||``)."""

    first: Node
    rest: tuple[tuple[str, Node], ...]
    source: str


@dataclass(frozen=True, slots=True)
class CommandList:
    """One after the other."""

    items: tuple[Node, ...]
    source: str


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with what they lead to, and what is done otherwise."""

    branches: tuple[tuple[CommandList, CommandList], ...]
    otherwise: CommandList
    source: str


@dataclass(frozen=True, slots=True)
class ForLoop:
    """``for NAME in WORDS`` (None: the script's own arguments)."""

    name: str
    words: tuple[str, ...] | None
    body: CommandList
    source: str


@dataclass(frozen=True, slots=True)
class WhileLoop:
    """``while``, or ``until`` where it is ``negated``; a C-style ``for`` is one too."""

    condition: Node
    body: CommandList
    negated: bool
    source: str


@dataclass(frozen=True, slots=True)
class Case:
    """``case WORD in`` patterns with what they lead to."""

    word: str
    items: tuple[tuple[tuple[str, ...], CommandList], ...]
    source: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function's definition."""

    name: str
    body: Node
    source: str


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """``{ … }``, or ``( … )`` whose variables stay inside."""

    body: CommandList
    subshell: bool
    redirections: tuple[Redirection, ...]
    source: str


Node: TypeAlias = (
    SimpleCommand | ArithmeticCommand | Pipeline | AndOr | CommandList | If | ForLoop | WhileLoop
    | Case | Function | CommandGroup
)  # fmt: skip


def parse(text: str, line: int = 1) -> CommandList:
    """The tree of ``text``, which begins on ``line``; KvroomError where a quote is not closed or it is
    nested too deep."""
    return _Parser(text, _Lexer(text).tokens(), line).script()


@dataclass(slots=True)
class _Lexer:
    text: str
    found: list[Token] = field(default_factory=list)
    pending: list[Token] = field(default_factory=list)

    def tokens(self) -> list[Token]:
        text, i, count, start = self.text, 0, len(self.text), True
        comparison = False
        while i < count:
            c = text[i]
            if c in BLANKS:
                i += 1
            elif (after := continued(text, i)) > i:
                i = after
            elif c == "\n":
                self.found.append(Token("newline", "\n", i))
                i, start = self._bodies(i + 1), True
            elif c == "#" and (i == 0 or text[i - 1] in METACHARACTERS):
                end = text.find("\n", i)
                i = count if end < 0 else end
            elif comparison:
                end = max(word_end(text, i, _COMPARISON_STOPS), i + 1)
                self.found.append(Token("word", text[i:end], i))
                comparison, i, start = (
                    text[i:end] != "]]" and text[end : end + 1] != ";",
                    end,
                    False,
                )
            elif start and text.startswith("((", i) and (end := self._arithmetic(i)):
                self.found.append(Token("arithmetic", text[i + 2 : end - 2], i))
                i, start = end, False
            elif (match := _REDIRECTION.match(text, i)) and not self._substitution(match):
                i, start = self._redirection(match), False
            elif match := _OPERATORS.match(text, i):
                self.found.append(Token("operator", match[0], i))
                i, start = match.end(), True
            else:
                end = past(text, i) if text[i : i + 2] in ("<(", ">(") else word_end(text, i)
                end = max(end, i + 1)
                word = text[i:end]
                self.found.append(Token("word", word, i))
                comparison = start and word == "[["
                start = (start and word in _RESERVED_STARTS) or word == "for"
                i = end
        return self.found

    def _arithmetic(self, at: int) -> int:
        """Past ``((…))`` at ``at``; 0 where there is none."""
        try:
            end = past(self.text, at)
        except KvroomError:
            return 0
        return end if self.text[end - 2 : end] == "))" else 0

    def _substitution(self, match: re.Match[str]) -> bool:
        return match[0] in ("<", ">") and self.text[match.end() : match.end() + 1] == "("

    def _redirection(self, match: re.Match[str]) -> int:
        text, i = self.text, match.end()
        while i < len(text) and text[i] in BLANKS:
            i += 1
        end = past(text, i) if text[i : i + 2] in ("<(", ">(") else word_end(text, i)
        sign = re.sub(r"^(?:0(?=<)|1(?=>)|\d*(?=<<)|\{\w+\})", "", match[0])
        token = Token("redirection", sign, match.start(), None)
        token.body = text[i:end]
        self.found.append(token)
        if token.text in ("<<", "<<-") and end > i:
            self.pending.append(token)
        return end

    def _bodies(self, at: int) -> int:
        """Past the here-documents that begin on the line at ``at``."""
        for token in self.pending:
            typed = token.body or ""
            delimiter = re.sub(r"['\"\\]", "", typed)
            stripped = token.text == "<<-"
            lines: list[str] = []
            begin = at
            while at < len(self.text):
                end = self.text.find("\n", at)
                end = len(self.text) if end < 0 else end
                line = self.text[at:end].rstrip("\r")
                at = end + 1
                if (line.lstrip() if stripped else line.rstrip()) == delimiter:
                    break
                lines.append(line.lstrip("\t") if stripped else line)
            token.kind = "here"
            token.text = typed
            token.body = "\n".join(lines) + ("\n" if lines else "")
            token.at = begin
        self.pending.clear()
        return min(at, len(self.text))


class _Parser:
    def __init__(self, text: str, tokens: list[Token], line: int) -> None:
        self.text, self.tokens, self.i, self.depth = text, tokens, 0, 0
        self.first_line = line
        self.lines = [m.end() for m in re.finditer("\n", text)]

    def script(self) -> CommandList:
        items: list[Node] = []
        while self.i < len(self.tokens):
            items += self._list(()).items
            self.i += 1  # what belongs nowhere
        return CommandList(tuple(items), self.text)

    def _peek(self) -> Token | None:
        return self.tokens[self.i] if self.i < len(self.tokens) else None

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.kind in ("word", "operator") and token.text in texts

    def _take(self, *texts: str) -> bool:
        if self._is(*texts):
            self.i += 1
            return True
        return False

    def _blank(self) -> None:
        while (token := self._peek()) and (token.kind == "newline" or token.text in (";", "&")):
            self.i += 1

    def _source(self, since: int) -> str:
        end = min(self.i, len(self.tokens))
        if since >= end:
            return ""
        first, last = self.tokens[since], self.tokens[end - 1]
        end = last.at + len(last.text) + (4 if last.kind == "arithmetic" else 0)
        return " ".join(self.text[first.at : max(end, first.at)].split())[:200]

    def _list(self, stops: tuple[str, ...]) -> CommandList:
        """Commands up to one of the reserved words ``stops`` (not taken)."""
        since, items = self.i, []
        if self.depth > MAX_NESTING:
            fix = "Give the part that starts the engine."
            raise KvroomError("--from-command", self._here(), "is nested too deep", fix)
        while True:
            self._blank()
            if self._peek() is None or self._is(*stops):
                break
            before = self.i
            items.append(self._and_or())
            if self.i == before:
                if not self._foreign(stops):
                    break
                self.i += 1
                items.pop()
        return CommandList(tuple(items), self._source(since).rstrip("; "))

    def _foreign(self, stops: tuple[str, ...]) -> bool:
        """Whether what stands here belongs nowhere, and not to a list further out."""
        token = self._peek()
        return token is not None and self.depth == 0 and not self._is(*stops)

    def _here(self) -> str:
        token = self._peek()
        at = token.at if token else len(self.text)
        return f"line {bisect_right(self.lines, at) + 1}"

    def _and_or(self) -> Node:
        since = self.i
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while self._is("&&", "||"):
            sign = self.tokens[self.i].text
            self.i += 1
            while (token := self._peek()) and token.kind == "newline":
                self.i += 1
            rest.append((sign, self._pipeline()))
        return AndOr(first, tuple(rest), self._source(since)) if rest else first

    def _pipeline(self) -> Node:
        since = self.i
        negated = False
        while self._is("!", "time"):
            negated ^= self.tokens[self.i].text == "!"
            self.i += 1
        commands = [self._command()]
        while self._take("|", "|&"):
            while (token := self._peek()) and token.kind == "newline":
                self.i += 1
            commands.append(self._command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return Pipeline(tuple(commands), negated, self._source(since))

    def _command(self) -> Node:
        self.depth += 1
        try:
            return self._compound() or self._simple()
        finally:
            self.depth -= 1

    def _compound(self) -> Node | None:
        token, since = self._peek(), self.i
        if token is None:
            return None
        if token.kind == "arithmetic":
            self.i += 1
            return ArithmeticCommand(token.text, self._source(since))
        if token.kind == "operator" and token.text == "(":
            self.i += 1
            return self._group(since, ")", subshell=True)
        if token.kind != "word":
            return None
        if token.text == "{":
            self.i += 1
            return self._group(since, "}", subshell=False)
        kinds = {
            "if": self._if, "for": self._for, "select": self._for, "while": self._while,
            "until": self._while, "case": self._case, "function": self._function,
        }  # fmt: skip
        if token.text in kinds:
            self.i += 1
            node: Node = kinds[token.text](since)
            self._redirections()
            return node
        if _NAME.fullmatch(token.text) and [
            token.text for token in self.tokens[since + 1 : since + 3]
        ] == [
            "(",
            ")",
        ]:
            return self._function(since)
        return None

    def _group(self, since: int, end: str, *, subshell: bool) -> CommandGroup:
        body = self._list((end,))
        self._take(end)
        return CommandGroup(body, subshell, self._redirections(), self._source(since))

    def _redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        while (token := self._peek()) and token.kind in ("redirection", "here"):
            found.append(self._redirection_of(token))
            self.i += 1
        return tuple(found)

    @staticmethod
    def _redirection_of(token: Token) -> Redirection:
        if token.kind == "here":
            return Redirection("<<", token.text, token.body, any(c in token.text for c in "'\"\\"))
        return Redirection(token.text, token.body or "")

    def _if(self, since: int) -> If:
        branches: list[tuple[CommandList, CommandList]] = []
        while True:
            condition = self._list(("then", "elif", "else", "fi"))
            self._take("then")
            branches.append((condition, self._list(("elif", "else", "fi"))))
            if not self._take("elif"):
                break
        otherwise = self._list(("fi",)) if self._take("else") else CommandList((), "")
        self._take("fi")
        return If(tuple(branches), otherwise, self._source(since))

    def _for(self, since: int) -> Node:
        token = self._peek()
        if token is not None and token.kind == "arithmetic":
            self.i += 1
            begin, _, rest = token.text.partition(";")
            condition, _, step = rest.partition(";")
            body = self._body()
            every = CommandList((body, ArithmeticCommand(step, step)), body.source)
            test = ArithmeticCommand(condition if condition.strip() else "1", condition)
            loop = WhileLoop(test, every, negated=False, source=self._source(since))
            return CommandList((ArithmeticCommand(begin, begin), loop), self._source(since))
        name = token.text if token is not None else ""
        self.i += 1
        while (token := self._peek()) and token.kind == "newline":
            self.i += 1
        words: list[str] | None = None
        if self._take("in"):
            words = []
            while (token := self._peek()) and token.kind == "word":
                words.append(token.text)
                self.i += 1
        body = self._body()
        return ForLoop(name, None if words is None else tuple(words), body, self._source(since))

    def _body(self) -> CommandList:
        """``do … done``."""
        self._blank()
        closer = "}" if self._take("{") else "done"
        self._take("do")
        body = self._list((closer,))
        self._take(closer)
        return body

    def _while(self, since: int) -> WhileLoop:
        condition = self._list(("do",))
        negated = self.tokens[since].text == "until"
        return WhileLoop(condition, self._body(), negated, self._source(since))

    def _case(self, since: int) -> Case:
        token = self._peek()
        word = token.text if token is not None and token.kind == "word" else ""
        self.i += 1
        self._blank()
        self._take("in")
        items: list[tuple[tuple[str, ...], CommandList]] = []
        while True:
            while (token := self._peek()) and token.text in ("\n", ";", ";;", ";&", ";;&", "&"):
                self.i += 1
            if self._peek() is None or self._take("esac"):
                break
            self._take("(")
            patterns: list[str] = []
            while (token := self._peek()) and token.text != ")" and token.kind != "newline":
                if token.kind == "word":
                    patterns.append(token.text)
                self.i += 1
            self.i += 1
            items.append((tuple(patterns), self._list((";;", ";&", ";;&", "esac"))))
        return Case(word, tuple(items), self._source(since))

    def _function(self, since: int) -> Function:
        token = self._peek()
        name = token.text if token is not None else ""
        self.i += 1
        if self._take("("):
            self._take(")")
        while (token := self._peek()) and token.kind == "newline":
            self.i += 1
        return Function(name, self._command(), self._source(since))

    def _simple(self) -> SimpleCommand:
        since = self.i
        first = self._peek()
        words: list[str] = []
        redirections: list[Redirection] = []
        while token := self._peek():
            if token.kind == "word":
                words.append(token.text)
            elif token.kind in ("redirection", "here"):
                redirections.append(self._redirection_of(token))
            else:
                break
            self.i += 1
        line = bisect_right(self.lines, first.at) + self.first_line if first else 0
        return SimpleCommand(tuple(words), tuple(redirections), line, self._source(since))
