"""Agents that call and call, by clients that send less and less of it: what each client shows of what was said, and a
session that answers them as the server does."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from reliability.answer.judgement import Expected, Judged, expect, judge
from reliability.loops import LoopConfig, Stage, Turn, Window, keep_answer, observe
from reliability.tools import ToolBox
from reliability.types import CallDelta, Event, Finish, FinishReason

Message = dict[str, Any]
Shape = Callable[[list[Message], list[Message], int], list[Message]]
HEAD: list[Message] = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Do it."}]


def _keep_last(count: int, *, bare: bool) -> Shape:
    return lambda head, said, _: (head + said)[-count:] if bare else head + said[-count:]


def _fold(every: int, words: str, *behind: Message, role: str = "user") -> Shape:
    """A summary in the place of all whole blocks of so many laps, and what the client puts `behind` it."""

    def fold(head: list[Message], said: list[Message], lap: int) -> list[Message]:
        done = lap // every * every
        summary = [{"role": role, "content": f"{words} {done} calls."}, *behind] if done else []
        return [*head, *summary, *said[2 * done :]]

    return fold


def _clear(newest: int) -> Shape:
    def clear(head: list[Message], said: list[Message], _: int) -> list[Message]:
        old = [i for i, message in enumerate(said) if message["role"] == "tool"][:-newest]
        cleared = {"content": "[Old tool result content cleared]"}
        return head + [{**message, **cleared} if i in old else message for i, message in enumerate(said)]

    return clear


def _leave_results_out(head: list[Message], said: list[Message], _: int) -> list[Message]:
    return head + [message for message in said if message["role"] != "tool"]


GOT_IT = {"role": "assistant", "content": "Got it. Thanks for the additional context!"}
CONTINUE = {"role": "user", "content": "Continue."}
FULL: Shape = lambda head, said, _: head + said  # noqa: E731
SHAPES: dict[str, Shape] = {
    **{f"keeps the last {n}": _keep_last(n, bare=False) for n in range(2, 7)},
    **{f"keeps nothing but the last {n}": _keep_last(n, bare=True) for n in range(2, 7)},
    **{f"folds every {n} answers": _fold(n, "Summary of the work so far:") for n in range(1, 5)},
    **{f"folds every {n} answers, without a word of it": _fold(n, "I made") for n in range(1, 5)},
    **{f"folds every {n} answers and acknowledges it": _fold(n, "<state_snapshot>", GOT_IT) for n in range(1, 5)},
    **{f"folds every {n} answers into one of its own": _fold(n, "I made", role="assistant") for n in range(1, 5)},
    **{f"folds every {n} into its own, goes on": _fold(n, "I made", CONTINUE, role="assistant") for n in range(1, 5)},
    **{f"keeps {n} results": _clear(n) for n in range(1, 4)},
    "leaves results out": _leave_results_out,
}


@dataclass
class ShrunkSession:
    """A session, as the state keeps it over however many Routers."""

    config: LoopConfig = field(default_factory=LoopConfig)
    window: Window = field(default_factory=Window)

    def expect(self, messages: list[Message]) -> Expected:
        """What a Router expects of the answer, with the window that the state would send it."""
        expected = expect(messages, ToolBox(), id_seed="r", loops=self.config)
        return replace(expected, window=self.window if expected.wants_window else None)

    def answer(self, messages: list[Message], events: list[Event]) -> Judged:
        """Judge an answer, and keep it, whatever came of it."""
        expected = self.expect(messages)
        finish = Finish(reason=FinishReason.STOP)
        judged = judge(expected, events, finish, sent="", text_committed=False, attempt=0)
        self.take(expected, judged.turn or Turn())
        return judged

    def take(self, expected: Expected, turn: Turn) -> None:
        if expected.asked:
            self.window, _ = observe(self.window, turn, self.config, expected.asked)
        if expected.shown is not None:
            kept = keep_answer(self.window.kept, expected.shown, turn, self.config)
            self.window = replace(self.window, kept=kept)


def make_lap(number: int, result: str, arguments: str = '{"path": "a"}') -> list[Message]:
    """One call and its result, as a client sends them back."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def run_laps(
    shape: Shape,
    results: list[str],
    session: ShrunkSession | None = None,
    head: list[Message] | None = None,
    paths: str = "",
) -> list[Stage | None]:
    """The stage at each answer of an agent that makes the same call again and gets these results, or with `paths` reads
    one of them after the other."""
    session, head = session or ShrunkSession(), HEAD if head is None else head
    said: list[Message] = []
    stages: list[Stage | None] = []
    for number, result in enumerate(results):
        lap = make_lap(number, result, f'{{"path": "{paths[number]}"}}' if paths else '{"path": "a"}')
        function = lap[0]["tool_calls"][0]["function"]
        call = CallDelta(index=0, id=f"c{number}", name=function["name"], arguments=function["arguments"])
        judged = session.answer(shape(head, said, number), [call])
        stages.append(None if judged.loop is None else judged.loop.stage)
        said += lap
    return stages
