"""What one attempt has cost, where its tier never says."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from deployments.attempt import Reading
from reliability.answer import expect
from reliability.estimate import text_bytes, tokens_max, tokens_min
from reliability.gate import Hold
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import Reasoning, Started, Text

MESSAGES = ({"role": "user", "content": "hi"},)


def reading(output_cap: int, prompt_bytes: int = 18) -> Reading:
    """An attempt whose tier has taken the request."""
    made = Reading(
        tier="fast",
        number=0,
        expected=expect(MESSAGES, build_toolbox(()), id_seed="r", checks=CheckConfig()),
        hold=Hold.TOOL_CALLS,
        text_committed=False,
        started_ns=0,
        prompt_bytes=prompt_bytes,
        output_cap=output_cap,
    )
    made.take([Started()], 0)
    return made


@given(st.lists(st.text(max_size=40).map(Text) | st.text(max_size=40).map(Reasoning), max_size=8), st.integers(1, 200))
@example([Text("ok " * 14)], 14)
def test_an_estimate_stays_within_what_the_tier_was_allowed(events, cap):
    """A reader that leaves before the tier has counted is charged for what was written, from above, and for no more
    than was reserved for it; only a tier that has provably written more than it was allowed is charged more."""
    made = reading(cap)
    made.take(events, 1)
    written = sum(text_bytes(event.text) for event in events)
    usage = made.record(2).usage

    assert usage is not None
    assert not usage.exact
    assert usage.prompt_tokens == tokens_max(18)
    assert tokens_min(written) <= usage.completion_tokens <= max(cap, tokens_min(written))
    assert usage.completion_tokens >= min(cap, tokens_max(written))
