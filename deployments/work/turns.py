"""Whose job a worker does next: turns go round the API keys, and judgements come before the parsing of new requests.

Each key has a line for its judgements and one for the rest. A worker that becomes free serves the line of which the
fewest jobs are being done; among those a judgement goes first, then the line that was served longest ago. Where
`_WAITING_MAX` jobs wait, the key with the most of them gives up its newest job for another key's, and each key one that
isn't a judgement for one that is.

Invariants: no worker is free while a job waits; no key keeps another from its turn, nor from a place to wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

_WAITING_MAX = 64
_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants a job done: an API key. `judges`: the job judges an answer that exists."""

    key: str = ""
    judges: bool = False


NOBODY = Asker()


@dataclass(slots=True)
class _Line:
    """The jobs of one asker: how many are being done, and those that wait. Each hears whether its turn has come."""

    running: int = 0
    waiting: deque[asyncio.Future[bool]] = field(default_factory=deque)


class Turns:
    """The turns of `count` workers. Belongs to one event loop."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lines: dict[Asker, _Line] = {}  # the one that was served longest ago comes first

    async def take(self, asker: Asker) -> bool:
        """Wait for a turn, which `pass_on` ends; False: too many jobs wait, or this one has waited for `_WAIT_S`."""
        line = self._lines.setdefault(asker, _Line())
        if sum(each.running for each in self._lines.values()) < self._count:
            self._serve(asker)
            return True
        if not self._make_place(asker):
            self._tidy(asker)
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            async with asyncio.timeout(_WAIT_S):
                return await turn
        except BaseException as error:
            if not turn.done() or turn.cancelled():
                self._leave(asker, turn)
            elif turn.result():
                self.pass_on(asker)
            if isinstance(error, TimeoutError):
                return False
            raise

    def pass_on(self, asker: Asker) -> None:
        """End a turn of this asker; the worker's next turn is another's, or nobody's."""
        self._lines[asker].running -= 1
        self._tidy(asker)
        waiting = [each for each, line in self._lines.items() if line.waiting]
        if waiting:
            following = min(waiting, key=self._rank)
            turn = self._lines[following].waiting.popleft()
            self._serve(following)
            if not turn.done():
                turn.set_result(True)
            else:  # its caller has left, and hasn't been here yet
                self.pass_on(following)

    def _rank(self, asker: Asker) -> tuple[int, bool]:
        return self._lines[asker].running, not asker.judges

    def _serve(self, asker: Asker) -> None:
        line = self._lines.pop(asker)
        line.running += 1
        self._lines[asker] = line

    def _make_place(self, asker: Asker) -> bool:
        waiting = Counter[str]()
        for each, line in self._lines.items():
            waiting[each.key] += len(line.waiting)
        if waiting.total() < _WAITING_MAX:
            return True
        most = max(waiting, key=lambda key: waiting[key])
        if waiting[most] > waiting[asker.key] + 1:
            return self._give_up(Asker(most)) or self._give_up(Asker(most, judges=True))
        return asker.judges and self._give_up(Asker(asker.key))

    def _give_up(self, asker: Asker) -> bool:
        """Refuse the newest job of this asker that waits. Return False where none does."""
        line = self._lines.get(asker)
        if line is None or not line.waiting:
            return False
        newest = line.waiting.pop()
        if not newest.done():
            newest.set_result(False)
        self._tidy(asker)
        return True

    def _leave(self, asker: Asker, turn: asyncio.Future[bool]) -> None:
        line = self._lines.get(asker)
        if line is not None and turn in line.waiting:
            line.waiting.remove(turn)
            self._tidy(asker)

    def _tidy(self, asker: Asker) -> None:
        line = self._lines[asker]
        if not line.running and not line.waiting:
            del self._lines[asker]
