"""What a long run tells on standard error."""

import io

from kvroom.ui.terminal.progress import Waiting


class Screen(io.StringIO):
    """Standard error, a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_who_waits_is_told_from_the_first_moment_on(monkeypatch):
    screen = Screen(terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    with Waiting("draws") as waiting:
        waiting.tell("as asked, draw 1", 1, 3)
    told = screen.getvalue()
    assert "draws" in told
    assert told.endswith("\x1b[K")  # the line is gone when it is over


def test_nothing_is_told_outside_a_terminal(monkeypatch):
    screen = Screen(terminal=False)
    monkeypatch.setattr("sys.stderr", screen)
    with Waiting("draws") as waiting:
        waiting.tell("as asked, draw 1", 1, 3)
    assert not screen.getvalue()
