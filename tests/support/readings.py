"""An attempt that is being read, as tests want it."""

from collections.abc import Sequence
from typing import Any

from deployments.request.accounting import Accounting
from deployments.request.attempt import AttemptPlan, AttemptState
from reliability.answer.judgement import Expected, expect
from reliability.loops import Loop
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import Event, Hold, Started

MESSAGES = ({"role": "user", "content": "hi"},)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


class Reading(AttemptState):
    """An attempt whose batches are read and judged at once."""

    @property
    def loop(self) -> Loop | None:
        return self.scan.loop

    def take(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch, and report what it has cost; return what may leave now."""
        out = self.look(batch, now_ns)
        self.report_progress()
        return out

    def finish(self) -> list[Event]:
        """Settle and judge it when the stream is over; return what may still leave."""
        question = self.settle()
        return [] if question is None else self.take_judgement(question())


def open_state(expected: Expected, output_cap: int, **more: Any) -> Reading:
    """The state of an attempt that has read nothing yet."""
    planned: dict[str, Any] = {"tier": "fast", "number": 0, "hold": Hold.TOOL_CALLS, "text_committed": False}
    known = {name: more.pop(name) for name in ("prompt_bytes", "trusted") if name in more}
    account: dict[str, Any] = {"prompt_bytes": 0, "prompt_most": int, "progress": None} | known
    plan = AttemptPlan(**(planned | {"started_ns": 0} | more), expected=expected)
    return Reading(plan, Accounting(output_cap=output_cap, **account))


def reading(
    output_cap: int,
    prompt_bytes: int = 18,
    events: Sequence[Event] = (Started(),),
    expected: Expected | None = None,
    *,
    logprobs: bool = True,
    **more: Any,
) -> Reading:
    """An attempt whose tier has taken the request, or has said what `events` are."""
    expected = expected or expect(MESSAGES, build_toolbox(()), id_seed="r", checks=CheckConfig())
    made = open_state(expected, output_cap, prompt_bytes=prompt_bytes, logprobs=logprobs, **more)
    made.take(events, 0)
    return made
