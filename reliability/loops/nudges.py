"""What is put before a model that repeats itself, and said of that. A nudge depends on the kind alone.

It is short, and says nothing of tools, counts and results: a weak model copies what it reads last
(docs/decisions/010-loop-rules.md).
"""

from __future__ import annotations

from reliability.loops.comparison.findings import Kind, Loop

_STEP = "Take the next step: another tool, other arguments, or the answer."
_SEEN = f"You have called this already, and nothing has changed. {_STEP}"
_ROUNDS = f"You have taken these steps already, and nothing has changed. {_STEP}"
_BY_KIND = {
    Kind.ERRORS: f"This has failed in the same way each time. {_STEP}",
    Kind.REVISITS: (
        "You have seen this already, and nothing has changed. Now answer the request in words, from the result."
    ),
    Kind.TEXTS: "You have said this already. Take the next step, or say what stops you.",
    Kind.UNSEEN: (
        "You have answered this without looking. If it asks about something else than the requests before it, look "
        "that up with a tool now, and answer from the result."
    ),
}
_UNSEEN = "The answer says in words what no call has looked up."
_REPEATED = "Repeated identical output detected ({}x). Consider rephrasing the request or trying a different approach."
NUDGES = frozenset((_SEEN, _ROUNDS, *_BY_KIND.values()))


def nudge(loop: Loop) -> str:
    """Write the message to put before the model."""
    return _BY_KIND.get(loop.kind, _ROUNDS if loop.period > 1 else _SEEN)


def describe_loop(loop: Loop) -> str:
    """Say in the report, or to a client, what the loop is."""
    return _UNSEEN if loop.kind is Kind.UNSEEN and loop.repetitions == 1 else _REPEATED.format(loop.repetitions)
