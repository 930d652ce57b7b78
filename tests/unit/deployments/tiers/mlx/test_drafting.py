"""Speculative decoding changes no answer, whatever the draft guesses; it only changes how many steps it takes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.models.sources import DEFAULT_SOURCE, parse_source
from deployments.tiers.mlx.answer import AnswerReader
from deployments.tiers.mlx.batch import Batch, Job
from deployments.tiers.mlx.drafting import Draft, is_cuttable
from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.pace import PrefillPace
from deployments.tiers.mlx.prompt_store import PromptStore
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.starting import prepare_batch
from reliability.types import Event, Failed, Fault, Finish, TierState
from tests.support import tiny_model as tiny
from tests.support.engine_rig import text_of
from tests.support.mlx_rig import ready
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, calls_of

PLACES = 4
PATIENCE_S = 300.0


class Wavering:
    """The model itself as its own draft, which guesses wrong behind every token that is a multiple of `wrong`. It
    counts what it is asked."""

    def __init__(self, model: Any, wrong: int) -> None:
        self._model, self._wrong = model, wrong
        self.calls = 0

    def __call__(self, tokens: Any, **options: Any) -> Any:
        import mlx.core as mx

        self.calls += 1
        out = self._model(tokens, **options)
        return mx.where((tokens % self._wrong == 0)[..., None], -out, out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class Counting(Wavering):
    """The model, which counts its steps, and raises in the one that reads a certain token."""

    poison = -1

    def __call__(self, tokens: Any, **options: Any) -> Any:
        self.calls += 1
        out = self._model(tokens, **options)
        if (tokens == self.poison).any().item():
            raise RuntimeError("not this one")
        return out


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Loaded:
    return load(parse_source(f"path:{folder}"), cache_dir=None, context_tokens=None, say=lambda _: None)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Another model, with the same tokens: its guesses are worth nothing."""
    folder = tiny.write_folder(tmp_path_factory.mktemp("draft") / "other", seed=7)
    return load(parse_source(f"path:{folder}"), cache_dir=None, context_tokens=None, say=lambda _: None).model


def batch_with(loaded: Loaded, draft: Any = None, tokens: int = 3, model: Any = None) -> Batch:
    made = None if draft is None else Draft(draft, tokens, "draft")
    batch = Batch(model or loaded.model, loaded.tokenizer, running_max=PLACES, label="t", draft=made)
    prepare_batch(batch, loaded, PLACES, 1 << 30, None)
    return batch


def add(batch: Batch, jobs: Sequence[dict[str, Any]]) -> list[list[Event]]:
    """Let these run; where their events will be."""
    outs: list[list[Event]] = [[] for _ in jobs]
    for fields, out in zip(jobs, outs, strict=True):
        usual = {"sampling": Sampling(), "reader": AnswerReader(), "max_tokens": 12}
        batch.add(len(batch._sequences) + 1, Job(sink=out.extend, **{**usual, **fields}))
    return outs


def run(batch: Batch, jobs: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Text and end of each."""
    outs = add(batch, jobs)
    while batch:
        try:
            batch.step()
        except RuntimeError:
            batch.recover(Failed(fault=Fault.SERVER_ERROR, message="a step failed"))
    return [(text_of(out), out[-1]) for out in outs]


def without_cache(answers: list[tuple[str, Any]]) -> list[tuple[str, Any, int]]:
    return [(text, end.reason, end.usage.completion_tokens) for text, end in answers]


PROMPTS = st.lists(st.lists(st.integers(4, 190), min_size=1, max_size=70), min_size=1, max_size=PLACES)
SAMPLINGS = st.one_of(
    st.just(Sampling()),
    st.builds(Sampling, temperature=st.sampled_from([0.5, 1.5]), seed=st.integers(0, 99), top_p=st.just(0.9)),
    st.builds(Sampling, frequency_penalty=st.just(1.0), repetition_penalty=st.just(1.3)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=PROMPTS,
    sampling=SAMPLINGS,
    max_tokens=st.integers(1, 24),
    guesses=st.integers(1, 6),
    wrong=st.sampled_from([1, 2, 3, 10_000]),
)
def test_the_answers_are_those_without_a_draft(loaded, prompts, sampling, max_tokens, guesses, wrong):
    """Text, reason and tokens, greedy and sampled with a seed, with penalties, for a draft that is always right, never,
    or now and then, on new prompts and on ones that are reused."""
    jobs = [{"prompt": prompt, "sampling": sampling, "max_tokens": max_tokens} for prompt in prompts]
    drafted = batch_with(loaded, Wavering(loaded.model, wrong), guesses)
    plain = [without_cache(run(batch_with(loaded), [job]))[0] for job in jobs]

    first, again = run(drafted, jobs), run(drafted, jobs)

    assert without_cache(first) == plain
    assert without_cache(again) == plain
    for (_, end), prompt in zip(again, prompts, strict=True):
        assert end.usage.cached_tokens == len(prompt) - 1


def test_another_model_s_guesses_do_no_harm(loaded, stranger):
    """A draft that was trained on something else is slow, and no more."""
    jobs = [{"prompt": list(range(40, 90)), "max_tokens": 20}, {"prompt": list(range(100, 130)), "max_tokens": 20}]

    assert without_cache(run(batch_with(loaded, stranger), jobs)) == without_cache(run(batch_with(loaded), jobs))


def test_right_guesses_save_steps_of_the_model(loaded):
    """With four right guesses a step gives five tokens."""
    model = Counting(loaded.model, 1)
    batch = batch_with(loaded, Wavering(loaded.model, 10_000), 4, model)
    model.calls = 0
    ((_, end),) = run(batch, [{"prompt": list(range(40, 90)), "max_tokens": 25}])

    assert end.usage.completion_tokens == 25
    assert model.calls == 1 + 5  # one for the prompt


def test_a_grammar_holds_with_a_draft_that_knows_nothing_of_it(loaded, constraints: Constraints):
    """The guesses aren't masked; what is drawn is."""
    constraint = constraints.of(ask(response_format={"type": "json_object"}, max_tokens=40))
    assert constraint is not None
    job = {"prompt": list(range(40, 90)), "max_tokens": 40, "constraint": constraint}
    plain, drafted = (run(batch_with(loaded, draft), [job]) for draft in (None, Wavering(loaded.model, 3)))

    assert without_cache(drafted) == without_cache(plain)
    assert plain[0][0].lstrip().startswith("{")


@pytest.mark.parametrize("wrong", [1, 3, 10_000])
@pytest.mark.parametrize(("after", "max_tokens"), [(0, 12), (1, 12), (4, 12), (5, 5), (5, 6)])
def test_nothing_is_drawn_behind_a_processor_s_error(loaded, after, max_tokens, wrong):
    """Where the grammar falls into an error in the middle of a turn, what was drawn before it is the answer so far, as
    without a draft, and nothing behind it; an answer that was whole by then is one."""
    prompt = list(range(40, 90))

    def raising(tokens: Any, logits: Any) -> Any:
        if tokens.size >= len(prompt) + after:
            raise RuntimeError("the grammar is broken")
        return logits

    job = {"prompt": prompt, "max_tokens": max_tokens, "processors": [raising]}
    batch = batch_with(loaded, Wavering(loaded.model, wrong), 6)
    ((plain, alone),), ((drafted, end),) = run(batch_with(loaded), [job]), run(batch, [job])

    assert (drafted, type(end), end.usage.completion_tokens) == (plain, type(alone), after)
    assert isinstance(end, Finish if after == max_tokens else Failed)
    assert without_cache(run(batch, [{"prompt": prompt}])) == without_cache(
        run(batch_with(loaded), [{"prompt": prompt}])
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_sequence_that_leaves_harms_nobody_and_is_kept(loaded, seed):
    """Whenever one is taken out, the others give what they would have given, and what it had computed is reused to the
    token."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(4, 190) for _ in range(dice.randint(2, 40))] for _ in range(3)]
    jobs = [{"prompt": prompt, "max_tokens": 30} for prompt in prompts]
    plain = without_cache(run(batch_with(loaded), jobs))
    batch = batch_with(loaded, Wavering(loaded.model, 2))
    outs = add(batch, jobs)
    for _ in range(dice.randint(1, 12)):
        batch.step()
    leaver = min(batch._sequences, default=None)
    row = batch._sequences.get(leaver)
    if row is not None:
        batch.remove(leaver)
    while batch:
        batch.step()
    stayed = [text_of(out) for out in outs if out and isinstance(out[-1], Finish)]

    assert set(stayed) <= {text for text, _, _ in plain}
    assert without_cache(run(batch, jobs)) == plain


def test_a_step_that_raises_ends_one(loaded):
    """The others begin again and give what they give alone; nothing of the broken step is kept."""
    model = Counting(loaded.model, 1)
    model.poison = 200
    batch = batch_with(loaded, Wavering(loaded.model, 2), 3, model)
    good = {"prompt": list(range(40, 90))}
    plain = without_cache(run(batch_with(loaded), [good]))
    (text, end), (_, failed) = run(batch, [good, {"prompt": [50, 60, 200, 70]}])

    assert without_cache([(text, end)]) == plain
    assert isinstance(failed, Failed)
    assert without_cache(run(batch, [good])) == plain
    assert isinstance(batch._prompts, PromptStore)
    assert not batch._prompts.holds([50, 60, 200])


def test_who_is_being_read_is_not_blamed_for_who_decodes(loaded):
    """A sequence that breaks the steps of decoding, again and again, takes no prompt with it that is prefilled then."""
    model = Counting(loaded.model, 1)
    batch = batch_with(loaded, Wavering(loaded.model, 2), 2, model)
    good, bad, late = ({"prompt": p, "max_tokens": 12} for p in ([40, 41, 42], [60, 61, 62], list(range(100, 190))))
    outs = add(batch, [good, bad])
    while len(batch._sequences[2].tokens) < 3:
        batch.step()
    model.poison = batch._sequences[2].tokens[-1]  # what it reads next
    batch._pace = PrefillPace(tokens_max=16)
    outs += add(batch, [late])
    while batch:
        try:
            batch.step()
        except RuntimeError:
            batch.recover(Failed(fault=Fault.SERVER_ERROR, message="a step failed"))

    assert isinstance(outs[1][-1], Failed)
    assert isinstance(outs[2][-1], Finish)


def test_only_caches_that_can_be_cut(loaded):
    """A window that moves on and a state that recurs can't take a guess back."""
    from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

    assert is_cuttable([KVCache(), KVCache()])
    assert not is_cuttable([KVCache(), RotatingKVCache(max_size=16)])
    assert not is_cuttable([ArraysCache(2)])


def told_of(model: Path, draft: str) -> Any:
    async def status() -> Any:
        tier = MlxTier(name="t", model=f"path:{model}", draft_model=draft)
        try:
            return await tier.wait_for_load(PATIENCE_S)
        finally:
            await tier.close()

    return asyncio.run(status())


def test_a_tier_says_what_drafts_for_it(folder: Path, tmp_path: Path):
    """The draft stands in the status with its digest; one that isn't there, is no source, or has other tokens, is a
    clear reason."""
    other = tiny.write_folder(tmp_path / "other", seed=7)
    ready = told_of(folder, f"path:{other}")
    assert (ready.state, ready.batched_as_alone) == (TierState.READY, True)
    assert ready.draft.startswith(f"path:{other} (sha256 ")

    described = other / "tokenizer.json"
    said = json.loads(described.read_text())
    words = said["model"]["vocab"]
    words["he"], words["ll"] = words["ll"], words["he"]
    described.write_text(json.dumps(said))
    for draft, reason in (
        (f"path:{other}", "it has other tokens"),
        ("path:/nowhere", "nowhere"),
        ("auto", "is not of the form"),
    ):
        status = told_of(folder, draft)
        assert status.state is TierState.UNAVAILABLE
        assert reason in status.reason


@pytest.mark.model
def test_the_real_model_says_the_same_with_a_draft(tier):
    """SmolLM2 as its own draft: texts, sampled ones too, and demanded calls are those without."""
    requests = [
        ask("Name three colours.", temperature=0.0, max_tokens=24),
        ask("Invent a name.", temperature=1.0, seed=11, max_tokens=24),
        ask("What's the weather in Paris?", temperature=0.0, tools=(WEATHER_TOOL,), tool_choice="required"),
    ]

    async def said(tier: MlxTier) -> list[Any]:
        outs = await asyncio.gather(*(answer(tier, request) for request in requests))
        return [(text_of(out), [call[1:] for call in calls_of(out)], out[-1].reason) for out in outs]

    drafted = ready(model=DEFAULT_SOURCE, draft_model=DEFAULT_SOURCE)
    try:
        assert asyncio.run(said(drafted)) == asyncio.run(said(tier))
    finally:
        asyncio.run(drafted.close())
