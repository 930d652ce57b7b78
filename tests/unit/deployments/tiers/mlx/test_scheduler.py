"""Prompts that are prefilled together: in fewer steps, with the text that each has alone, and nobody pays for another's
failure."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deployments.tiers.mlx import sequence
from deployments.tiers.mlx.cache_size import measure_layout
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.memory_budget import UNBOUNDED, PrefillBudget
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptReuse
from deployments.tiers.mlx.prompt_cache.prompt_store import PromptStore
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from reliability.types import Event, Failed, Fault, Finish, Prefilled
from tests.support.engine_rig import load_folder, text_of
from tests.support.tier_asking import usage_of

PLACES = 6
POISON = 200
ANSWER_TOKENS = 12


class Allergic:
    """The real model, which raises whenever it reads one token, and mixes padded rows up or refuses several when told
    to; it counts what it is asked."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.widths: list[tuple[int, int]] = []
        self.mixes = self.refuses = False

    def __call__(self, tokens: Any, *inputs: Any, **options: Any) -> Any:
        self.widths.append(tuple(tokens.shape))
        if self.refuses and tokens.shape[0] > 1:
            raise RuntimeError("only one")
        together = tokens.shape[0] > 1 and tokens.shape[1] > 1
        out = self._model(tokens[::-1] if self.mixes and together else tokens, *inputs, **options)
        if (tokens == POISON).any().item():
            raise RuntimeError("not this one")
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Loaded:
    model = load_folder(folder)
    return dataclasses.replace(model, model=Allergic(model.model))


@pytest.fixture
def batch(loaded: Loaded) -> Scheduler:
    return Scheduler(loaded.model, loaded.tokenizer, running_max=PLACES, label="t")


def add(batch: Scheduler, prompts: Sequence[Sequence[int]], reuse: PromptReuse | None = None) -> list[list[Event]]:
    outs: list[list[Event]] = [[] for _ in prompts]
    for prompt, out in zip(prompts, outs, strict=True):
        ticket = len(batch._sequences) + 1
        job = EngineJob(prompt=prompt, max_tokens=ANSWER_TOKENS, sink=out.extend, reuse=reuse or PromptReuse())
        batch.add(ticket, job)
    return outs


def run(batch: Scheduler) -> None:
    while batch:
        try:
            batch.step()
        except RuntimeError:
            batch.recover(Failed(fault=Fault.SERVER_ERROR, message="a step failed"))


def steps_to_first_tokens(batch: Scheduler, prompts: Sequence[Sequence[int]]) -> int:
    """How many steps until each has one."""
    add(batch, prompts)
    steps = 0
    while not all(row.tokens for row in batch._sequences.values()):
        batch.step()
        steps += 1
    batch.fail_all(Failed(fault=Fault.UNAVAILABLE, message="enough"))
    return steps


def some_prompts(dice: random.Random, count: int) -> list[list[int]]:
    return [[dice.randrange(4, 190) for _ in range(dice.randint(1, 10))] for _ in range(count)]


def test_short_prompts_that_wait_together_share_their_steps(batch: Scheduler) -> None:
    """All have their first token after as many steps as one of them alone."""
    prompts = some_prompts(random.Random(1), 6)

    assert steps_to_first_tokens(batch, prompts) == steps_to_first_tokens(batch, prompts[:1])


@pytest.mark.parametrize("seed", range(8))
def test_no_step_prefills_more_than_a_chunk(batch: Scheduler, loaded: Loaded, seed: int) -> None:
    """Padding counted: the product of rows and length of a prefill is at most what one chunk may hold, twice of it
    where more wait than decode."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(4, 190) for _ in range(dice.choice([3, 9, 20, 33, 90]))] for _ in range(PLACES)]
    batch.pace = PrefillBudget(tokens_max=32)
    loaded.model.widths.clear()
    add(batch, prompts)
    run(batch)

    assert max(rows * length for rows, length in loaded.model.widths if length > 1) <= 64


@pytest.mark.parametrize("place", range(4))
def test_a_prompt_that_breaks_its_step_ends_alone(batch: Scheduler, place: int) -> None:
    """Those that were prefilled with it begin again, give the text that they give alone, and only it fails."""
    prompts = some_prompts(random.Random(place), 4)
    prompts[place] = [*prompts[place][:3], POISON, 9]
    innocent = [prompt for prompt in prompts if POISON not in prompt]
    alone = add(batch, innocent)
    run(batch)
    outs = add(batch, prompts)
    run(batch)

    failed = outs.pop(place)
    assert isinstance(failed[-1], Failed)
    assert all(isinstance(out[-1], Finish) for out in outs)
    assert [text_of(out) for out in outs] == [text_of(out) for out in alone]


def test_a_model_that_mixes_prompts_up_gets_them_one_by_one(batch: Scheduler, loaded: Loaded) -> None:
    """What the check at the start finds is cured where it can be, and the status tells the truth."""
    loaded.model.mixes = True
    ready = prepare_batch(batch, loaded)
    loaded.model.widths.clear()
    add(batch, some_prompts(random.Random(1), 6))
    run(batch)
    loaded.model.mixes = False

    assert ready.batched_as_alone is True
    assert "prefilled one at a time" in ready.warning
    assert all(rows == 1 for rows, length in loaded.model.widths if length > 1)
    assert any(rows > 1 for rows, _ in loaded.model.widths)


def test_a_model_that_reads_one_sequence_only_answers_them_in_turn(batch: Scheduler, loaded: Loaded) -> None:
    """It starts, and each gets what it gets alone; with one request at a time there is nothing to warn of."""
    prompts = some_prompts(random.Random(2), 4)
    alone = add(batch, prompts)
    run(batch)
    loaded.model.refuses = True
    ready = prepare_batch(batch, loaded)
    outs = add(batch, prompts)
    admitted = batch.can_admit(next(iter(batch._sequences.values())).job)
    run(batch)
    single = prepare_batch(batch, loaded)
    loaded.model.refuses = False

    assert [text_of(out) for out in outs] == [text_of(out) for out in alone]
    assert not admitted
    assert ready.batched_as_alone is False
    assert "answered one at a time" in ready.warning
    assert (single.batched_as_alone, single.warning) == (None, loaded.warning)


def test_a_long_prompt_is_reported_until_its_first_token(batch: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk, where no prefill is too short for it; one that is takes no message."""
    batch.pace = PrefillBudget(tokens_max=32)
    (quick,) = add(batch, [range(10, 150)])
    run(batch)
    monkeypatch.setattr(sequence, "_PREFILL_LONG_S", 0.0)
    monkeypatch.setattr(sequence, "PREFILL_EVERY_S", 0.0)
    (told,) = add(batch, [range(10, 150)])
    run(batch)
    steps = [event for event in told if isinstance(event, Prefilled)]

    assert not any(isinstance(event, Prefilled) for event in quick)
    assert [(step.tokens, step.of_tokens) for step in steps] == [(read, 140) for read in (32, 64, 96, 128, 139)]
    assert all(step.left_s > 0 for step in steps)
    assert told[: len(steps)] == steps


def test_a_prompt_that_waits_for_another_s_is_reported(batch: Scheduler) -> None:
    """Law: after two seconds, then each second, with how many are before it, admitted or not; one being read isn't."""
    batch.pace = PrefillBudget(tokens_max=32)
    outs = add(batch, [range(10, 150)] * 2)
    later: list[Event] = []
    job = EngineJob(prompt=range(10, 20), max_tokens=1, sink=later.extend)
    batch.step()
    batch.report_waiting([job])
    quick = [*outs[1], *later]
    for one in (*(one.job for one in batch._sequences.values()), job):
        one.report_s = 0.0
    batch.report_waiting([job])
    batch.report_waiting([job])

    told = [[(one.tokens, one.of_tokens, one.waits_behind) for one in out] for out in (*outs, later)]  # type: ignore[union-attr]
    assert (quick, told) == ([], [[], [(0, 140, 1)], [(0, 10, 2)]])


@pytest.mark.parametrize("together", [False, True])
def test_an_agent_that_waited_for_its_helpers_reads_nothing_again(batch: Scheduler, together: bool) -> None:
    """Law: behind three helpers, in turn or at once, whose prompts fill the cache, the agent goes on from its own
    prompt; where they are no helpers of its, it reads all again."""
    dice = random.Random(4)
    agent, *others = ([dice.randrange(4, 190) for _ in range(200)] for _ in range(4))
    cached = []
    for parent in (("", "agent"), None):
        prompts = PromptStore(bytes_max=1 << 30)
        batch.set_budget(UNBOUNDED, prompts)
        add(batch, [agent], PromptReuse(session=("", "agent")))
        run(batch)
        prompts.memory._bytes_max = prompts.memory.nbytes * 5 // 2
        for number, prompt in enumerate(others):
            add(batch, [prompt], PromptReuse(session=("", f"agent.{number}"), parent=parent))
            if not together:
                run(batch)
        run(batch)
        (out,) = add(batch, [[*agent, 5]], PromptReuse(session=("", "agent")))
        run(batch)
        cached.append(usage_of(out).cached_tokens)

    assert cached == [200, 0]


@pytest.mark.parametrize("kept_tokens", [200, 50])
def test_a_prompt_left_in_the_middle_goes_on_where_it_was(batch: Scheduler, loaded: Loaded, kept_tokens: int) -> None:
    """Law: a client that leaves while its prompt is computed, and asks again, finds all that was computed, or as much
    as may be kept, and gets the answer of one that stayed."""
    prompt = [random.Random(3).randrange(4, 190) for _ in range(200)]
    batch.pace = PrefillBudget(tokens_max=32)
    (stayed,) = add(batch, [prompt])
    run(batch)
    token_bytes = sum(layer.token_bytes for layer in measure_layout(loaded.model).layers)
    batch.set_budget(UNBOUNDED, PromptStore(bytes_max=kept_tokens * token_bytes))
    (left,) = add(batch, [prompt])
    for _ in range(3):
        batch.step()
    batch.remove(1)
    (back,) = add(batch, [prompt])
    run(batch)

    assert left == []
    assert usage_of(back).cached_tokens == min(96, kept_tokens)
    assert text_of(back) == text_of(stayed)
