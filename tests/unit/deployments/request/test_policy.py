"""What the configuration says about one request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.config import RouterConfig, ServerConfig
from deployments.request.policy import build_expected, hold_of, limits_of
from reliability.answer.gate import Hold
from reliability.config import ReliabilityConfig, StreamingConfig
from reliability.tools import ToolBox
from reliability.types import ChatRequest


def test_only_mlx_tiers_are_asked_for_a_grammar():
    """The ladder's constrained re-ask is for the kind of tier that decodes here; a hosted one can't be made to."""
    config = RouterConfig(reliability=ReliabilityConfig(), server=ServerConfig())
    kinds = {"fast": "mlx", "standard": "scripted", "longctx": "mlx", "premium": "hosted"}

    assert limits_of(config, kinds=kinds).grammars == {"fast", "longctx"}
    assert limits_of(config).grammars == frozenset()


SAID = [
    {"role": "assistant", "content": "I have changed the file as you said."},
    {"role": "user", "content": "continue"},
]


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("held", ["tool_calls", "all"])
def test_a_conversation_that_repeats_itself_is_held(count, held):
    """A text that has left can't be taken back, so the answer that may be the third of its kind waits until it has been
    judged; every other one streams."""
    reliability = ReliabilityConfig(streaming=StreamingConfig(hold=Hold(held)))
    config = RouterConfig(reliability=reliability, server=ServerConfig())
    request = ChatRequest(
        request_id="r",
        session_id="s",
        messages=({"role": "user", "content": "Change it."}, *SAID * count),
        max_tokens=10,
        timeout_s=1.0,
    )
    expected = build_expected(config, request, ToolBox())

    assert hold_of(config, expected, stream=True) is (Hold.ALL if count >= 2 else Hold(held))
    assert hold_of(config, expected, stream=False) is Hold.ALL
    off = replace(expected, loops=None)
    assert hold_of(config, off, stream=True) is Hold(held)
