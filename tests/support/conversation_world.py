"""An owner of conversations, and clients that ask it."""

import itertools
from typing import Any

from reliability.loops.transcript import answer_turn
from reliability.sessions import Conversations, describe_answer, read_trail

HOUR_NS = 3600 * 10**9
S = 10**9


class World:
    """An owner of conversations, and clients that ask it."""

    def __init__(self, most: int = 100, ttl_ns: int = HOUR_NS) -> None:
        self.known = Conversations(most, ttl_ns)
        self.numbers = itertools.count()
        self.now_ns = 0

    def begin(self, messages: list[dict[str, Any]], key: str = "k", owner: str = "") -> tuple[str, str]:
        """Ask; return the name, and the ticket to be answered."""
        ticket = f"t{next(self.numbers)}"
        return self.known.find(key, read_trail(messages, owner), ticket, self.now_ns), ticket

    def ask(self, messages: list[dict[str, Any]], answer: Any = "", key: str = "k", owner: str = "") -> str:
        """Ask and be answered; None: in vain."""
        name, ticket = self.begin(messages, key, owner)
        self.end(name, ticket, answer, key)
        return name

    def end(self, name: str, ticket: str, answer: Any, key: str = "k") -> None:
        answered = None if answer is None else describe_answer(answer_turn(answer))
        self.known.answer(key, name, ticket, answered, self.now_ns)
