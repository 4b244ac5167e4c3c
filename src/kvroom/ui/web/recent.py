"""Answers that were given lately."""

from __future__ import annotations

import threading
from collections import OrderedDict


class RecentTexts:
    """Texts by key; beyond ``most`` characters in all, those unused for longest are forgotten."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self.texts: OrderedDict[str, str] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: str) -> str | None:
        """The text kept under ``key``."""
        with self.lock:
            if key in self.texts:
                self.texts.move_to_end(key)
            return self.texts.get(key)

    def put(self, key: str, text: str) -> None:
        """Keep ``text``."""
        with self.lock:
            if key not in self.texts:
                self.texts[key] = text
                self.size += len(key) + len(text)
            while self.size > self.most:
                old_key, old = self.texts.popitem(last=False)
                self.size -= len(old_key) + len(old)
