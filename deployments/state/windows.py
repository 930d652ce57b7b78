"""The loop windows of all sessions: least recently used first to go, bounded in number and in characters."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from deployments.state.records import TurnItem
from reliability.admission.ledger import session_name
from reliability.loops import LoopConfig, Window, keep_answer, observe
from reliability.loops.answer_history import count_kept_chars

_CHARS_MAX = 32_000_000


class Windows:
    """The windows by session. It belongs to the actor's transitions."""

    def __init__(self, windows_max: int, chars_max: int = _CHARS_MAX) -> None:
        self._max, self._chars_max = windows_max, chars_max
        self._windows: OrderedDict[str, tuple[Window, int]] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def chars(self) -> int:
        """How many characters are kept, in all windows."""
        return self._chars

    def find(self, key: str, session: str, complete: int = 0) -> Window:
        """Return a session's window; without the kept answers where they are no more than the `complete` ones that the
        request shows."""
        window, _ = self._windows.get(session_name(key, session), (Window(), 0))
        answers = sum(not each.turn.continued for each in window.kept)
        return replace(window, kept=()) if window.kept and answers <= complete else window

    def take(self, item: TurnItem, config: LoopConfig) -> None:
        """Add an answer to its session's window."""
        name = session_name(item.key, item.session)
        window = self._drop(name)
        if item.request:
            window, _ = observe(window, item.turn, config, item.request)
        if item.shown is not None and config.enabled:
            kept = keep_answer(window.kept, item.shown, item.turn, config)
            window = replace(window, kept=kept, tools=window.tools or item.shown.tools)
        chars = count_kept_chars(window.kept)
        self._windows[name] = window, chars
        self._chars += chars
        while len(self._windows) > self._max or self._chars > self._chars_max:
            self._drop(next(iter(self._windows)))

    def forget(self, key: str, session: str) -> None:
        """Forget a session's window."""
        self._drop(session_name(key, session))

    def _drop(self, name: str) -> Window:
        window, chars = self._windows.pop(name, (Window(), 0))
        self._chars -= chars
        return window
