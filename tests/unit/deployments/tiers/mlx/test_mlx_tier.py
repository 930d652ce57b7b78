"""The tier `mlx` with the real default model, as the router sees it."""

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deployments.models.sources import DEFAULT_SOURCE, parse_source
from deployments.tiers.mlx.mlx_tier import MlxTier, _find_unsupported
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import _LEAD_MAX
from reliability.types import Fault, Finish, FinishReason, Logprobs, Started, Text, TierState
from tests.support import tiny_model as tiny
from tests.support.mlx_rig import PATIENCE_S, greedy, ready, running
from tests.support.repository import ROOT
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, batches, calls_of, eventually, text_of, usage_of


@pytest.fixture(scope="module")
def tiny_tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxTier]:
    folder = tiny.write_folder(tmp_path_factory.mktemp("mlx") / "tiny")
    made = ready(model=f"path:{folder}", max_running=1, max_waiting=1, context_tokens=10_000)
    yield made
    asyncio.run(made.close())


class TestBeforeItIsReady:
    def test_constructing_is_cheap_and_imports_nothing(self) -> None:
        """Law: neither the import nor the constructor loads MLX on the caller's thread or takes noticeable time."""
        code = (
            "import sys, time\n"
            "from deployments.tiers.mlx.mlx_tier import MlxTier\n"
            "assert not [m for m in sys.modules if m.split('.')[0] in ('mlx', 'mlx_lm', 'transformers')]\n"
            "began = time.monotonic(); tier = MlxTier(name='t', model='path:nowhere')\n"
            "assert time.monotonic() - began < 0.5"
        )
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=100, check=True)

    def test_leaving_in_the_middle_of_a_load_is_clean(self, tmp_path: Path) -> None:
        """Law: a process that ends while its tier is inside of MLX ends normally, and doesn't abort."""
        code = (
            "import sys\n"
            "from deployments.tiers.mlx.mlx_tier import MlxTier\n"
            f"tier = MlxTier(name='t', model='path:{tiny.write_folder(tmp_path / 'm')}')\n"
            "while 'mlx.core' not in sys.modules: pass"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=100, check=False)
        assert done.returncode == 0

    def test_while_loading_a_request_is_answered_at_once(self, tmp_path: Path) -> None:
        """Law: until the model is there, requests get one `loading` and the status says how far it is."""
        tier = MlxTier(name="fast", model=f"path:{tiny.write_folder(tmp_path / 'm')}")
        status = asyncio.run(tier.status())
        (failed,) = asyncio.run(answer(tier, greedy("Hi")))
        assert (status.state, status.kind) == (TierState.LOADING, "mlx")
        assert status.reason
        assert failed.fault is Fault.LOADING
        assert failed.retry_after_s
        asyncio.run(tier.close())

    @pytest.mark.parametrize("model", ["path:/no/such/folder", "nonsense"])
    def test_without_a_model_it_is_unavailable(self, model: str) -> None:
        """Law: a model that can't be had makes the tier unavailable with the reason; nothing is raised."""
        tier = MlxTier(name="fast", model=model)
        status = asyncio.run(tier.wait_for_load(PATIENCE_S))
        (failed,) = asyncio.run(answer(tier, greedy("Hi")))
        assert status.state is TierState.UNAVAILABLE
        assert status.reason
        assert failed.fault is Fault.UNAVAILABLE
        assert "/no/such" not in failed.message
        asyncio.run(tier.close())
        asyncio.run(tier.close())


class TestPlaces:
    async def test_one_too_many_is_told_when_to_come_back(self, tiny_tier: MlxTier) -> None:
        """Law: running and waiting requests are bounded; the next gets `overloaded`; a place that is left is free."""
        async with aclosing(tiny_tier.stream(greedy("Hi", max_tokens=200))) as first:
            assert [type(event) for event in await anext(first)] == [Started]
            async with aclosing(tiny_tier.stream(greedy("Hi", max_tokens=200))) as second:
                assert [type(event) for event in await anext(second)] == [Started]
                (refused,) = await answer(tiny_tier, greedy("Hi"))
        fourth = await answer(tiny_tier, greedy("Hi", max_tokens=3))
        assert refused.fault is Fault.OVERLOADED
        assert refused.retry_after_s
        assert isinstance(fourth[-1], Finish)

    def test_a_prompt_that_doesnt_fit_is_refused_with_both_numbers(self, tiny_tier: MlxTier) -> None:
        """Law: a prompt of the context's length or more is refused before it runs, with both numbers."""
        (failed,) = asyncio.run(answer(tiny_tier, greedy("x" * 300)))
        assert failed.fault is Fault.CONTEXT_LENGTH
        prompt, context = re.findall(r"\d+", failed.message)
        assert int(prompt) > 300
        assert int(context) == tiny.CONTEXT

    def test_max_tokens_is_clipped_to_what_is_left(self, tiny_tier: MlxTier) -> None:
        """Law: prompt and answer together never exceed the context."""
        events = asyncio.run(answer(tiny_tier, greedy("x" * 200, max_tokens=10_000)))
        assert usage_of(events).total_tokens <= tiny.CONTEXT


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("audio", {"extra": {"audio": {"voice": "alloy"}}}),
        ("n", {"extra": {"n": 2}}),
        (None, {"extra": {"n": 1, "logit_bias": {}, "presence_penalty": 0.0, "user": "me"}}),
        (None, {"response_format": {"type": "text"}, "tool_choice": "auto"}),
    ],
)
def test_what_cant_be_honored_is_refused_by_its_field(param: str | None, fields: dict[str, Any]) -> None:
    """Law: it is refused with the name of the field; a value that asks for nothing is no reason to refuse."""
    failed = _find_unsupported(ask(**fields))
    assert (failed and (failed.fault, failed.param)) == (param and (Fault.UNSUPPORTED, param))


def tokens_told(events: list[Any]) -> list[Any]:
    return [token for event in events if isinstance(event, Logprobs) for token in event.tokens]


@pytest.mark.model
class TestAnswers:
    def test_it_knows_the_capital_of_france(self, tier: MlxTier) -> None:
        """Law: the converted model answers as the original does, and says what it used."""
        events = asyncio.run(answer(tier, greedy("What is the capital of France?")))
        assert isinstance(events[0], Started)
        assert text_of(events) == "The capital of France is Paris."
        assert (events[-1].reason, events[-1].model) == (FinishReason.STOP, DEFAULT_SOURCE)
        assert (usage_of(events).prompt_tokens, usage_of(events).completion_tokens) == (37, 8)

    def test_the_status_says_where_it_comes_from(self, tier: MlxTier) -> None:
        """Law: a ready tier tells source, revision, quantization and context, and has no reason."""
        status = asyncio.run(tier.status())
        assert (status.state, status.reason, status.source) == (TierState.READY, "", DEFAULT_SOURCE)
        assert (status.revision, status.context_tokens) == ("0.1.2", 8192)
        assert status.batched_as_alone is True
        assert "Q4_1" in status.quantization
        assert status.sha256 == parse_source(DEFAULT_SOURCE).sha256
        assert set(status.versions) == {"mlx", "mlx-lm"}
        assert all(status.versions.values())

    def test_probabilities_are_told_on_request(self, tier: MlxTier) -> None:
        """Law: the tokens that are told spell the answer, stop string excluded; greedy takes the likeliest; and the
        text is the one that comes without them."""
        request = greedy("Name three colours.", stop=("blue",))
        plain, events = (asyncio.run(answer(tier, r)) for r in (request, replace(request, top_logprobs=3)))
        told = tokens_told(events)

        assert text_of(events) == text_of(plain)
        assert b"".join(token.raw for token in told).decode().startswith(text_of(events))
        assert b"blue" not in b"".join(token.raw for token in told)
        for token in told:
            assert len(token.top) == 3
            assert token.top[0] == (token.raw, token.logprob)
            assert sum(math.exp(p) for _, p in token.top) <= 1.0001

    def test_what_it_was_unsure_of_is_told(self, tier: MlxTier) -> None:
        """Law: the tokens that were hardly before another one are told with the answer's end, as unsure as their
        probabilities say, and no others."""
        events = asyncio.run(answer(tier, replace(greedy("Name three colours."), top_logprobs=2)))
        told = tokens_told(events)
        leads = [(token.raw.decode(), token.top[0][1] - token.top[1][1]) for token in told]
        wanted = [(text, math.log1p(math.exp(-lead))) for text, lead in leads if lead < _LEAD_MAX]

        found = [one for one in events[-1].unsure if one[0]][: len(wanted)]
        assert [text.strip() for text, _ in found] == [text.strip() for text, _ in wanted]
        assert [value for _, value in found] == pytest.approx([value for _, value in wanted], abs=1e-3)
        assert 0 < len(wanted) < len(told)

    def test_the_first_piece_comes_alone(self, tier: MlxTier) -> None:
        """Law: the first token isn't kept waiting for others, and no chunk is empty."""
        chunks = asyncio.run(batches(tier, greedy("Name three colours.")))
        assert [type(event) for event in chunks[0]] == [Started]
        assert all(chunks)
        assert isinstance(chunks[1][0], Text)
        assert len(chunks[1][0].text.split()) == 1

    def test_it_calls_a_tool(self, tier: MlxTier) -> None:
        """Law: a call that the model marks arrives as a call, with an id, and the answer ends with `tool_calls`."""
        request = greedy("What's the weather in Paris?", tools=(WEATHER_TOOL,), max_tokens=60)
        events = asyncio.run(answer(tier, request))
        ((call_id, name, arguments),) = calls_of(events)
        assert re.fullmatch(r"call_[0-9a-f]{24}", call_id or "")
        assert (name, "Paris" in arguments) == ("get_weather", True)
        assert events[-1].reason is FinishReason.TOOL_CALLS


@pytest.mark.model
class TestLeaving:
    async def test_leaving_during_prefill_is_noticed(self, tier: MlxTier, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: a long prompt doesn't keep its slot: leaving in the middle of it frees the slot after the step under
        way, at most one more that had begun meanwhile."""
        steps = 0
        step = Scheduler.step

        def counted(self: Scheduler) -> int:
            nonlocal steps
            steps += 1
            return step(self)

        monkeypatch.setattr(Scheduler, "step", counted)
        async with aclosing(tier.stream(greedy("word " * 3000))) as stream:
            assert [type(event) for event in await anext(stream)] == [Started]
            await eventually(lambda: running(tier) == 1 and steps > 0, PATIENCE_S)
        left = steps
        await eventually(lambda: running(tier) == 0, PATIENCE_S)
        assert steps - left <= 1
