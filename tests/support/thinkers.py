"""An upstream that thinks as many tokens as it is made to, one a chunk, and says what it was asked."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.support import plays
from tests.support.plays import SSE, Act, Hang, Head, Play, Seen, Send, chunk

ANSWER = "It is 21."
PROMPT_TOKENS = 11
OPEN, CLOSE = "<think>\n", "\n</think>\n\n"


def thought_of(tokens: int, begin: int = 0) -> list[str]:
    """So many tokens of thought, of which none comes twice."""
    return [f"w{number} " for number in range(begin, begin + tokens)]


def count_thought(text: str) -> int:
    return len(text.split())


def usage_of(tokens: int, reasoning: int = 0) -> Mapping[str, Any]:
    """What an upstream counts of an answer of so many tokens."""
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, **details}


def is_off(body: Mapping[str, Any]) -> bool:
    """Whether a request has thinking switched off, in the words of any server."""
    return (
        body.get("reasoning") in ({"effort": "none"}, {"enabled": False})
        or body.get("chat_template_kwargs", {}).get("enable_thinking") is False
        or body.get("reasoning_effort") == "none"
    )


def is_prefilled(body: Mapping[str, Any]) -> bool:
    return bool(body["messages"][-1]["role"] == "assistant")


def think(thought: list[str], *, tags: bool, ends: bool = True) -> Play:
    """Think these tokens, in tags or in a field of their own, and answer; without an end it hangs there."""
    name = "content" if tags else "reasoning_content"
    pieces = [OPEN, *thought] if tags else thought
    frames = [chunk({name: piece}) for piece in pieces]
    acts: list[Act] = [Head(headers=SSE), *(Send(b"".join(frames[at : at + 50])) for at in range(0, len(frames), 50))]
    if not ends:
        return (*acts, Hang())
    close = [Send(chunk({"content": CLOSE}))] if tags else []
    usage = usage_of(len(thought) + 4, len(thought))
    return (*acts, *close, *plays.words(ANSWER), *plays.tail(usage=usage))


def thinker(thought: list[str], *, tags: bool, obeys: bool = True) -> Callable[[Seen], Play]:
    """A model that thinks so, without an end, until it may not: it answers where thinking is off, or behind its own
    words. One that doesn't obey thinks again."""

    def play(seen: Seen) -> Play:
        if obeys and (is_off(seen.body) or is_prefilled(seen.body)):
            return plays.good(ANSWER, usage=usage_of(4))
        return think(thought, tags=tags, ends=False)

    return play
