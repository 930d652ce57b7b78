"""Draft tokens change no answer: not its tokens, its end, its log-probabilities, nor what is kept of it."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.step import build_step
from deployments.tiers.mlx.decoding.generators import _LookupGenerator
from deployments.tiers.mlx.decoding.lookup import COUNT_MAX, DraftPolicy, Guess
from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from deployments.tiers.stream_matchers import AnswerReader
from reliability.types import Event, Failed, Fault, Finish
from tests.support.engine_rig import PROMPT, load_folder, text_of
from tests.support.kernels import only_here
from tests.support.random_models import build_model
from tests.support.tier_asking import ask

PLACES = 4


class Eager(DraftPolicy):
    """One that reads whatever is guessed."""

    def choose_count(self, offers: Sequence[Any]) -> int:
        return max((one.count for one in offers), default=0)


class Told(_LookupGenerator):
    """One that knows texts beforehand: it guesses their next tokens, some of them wrong."""

    texts: Sequence[Sequence[int]] = ()
    dice = random.Random(0)
    wrong = 0.0

    def _guess(self, row: Any) -> Guess | None:
        most = min(self.dice.randint(0, COUNT_MAX), row.max_tokens - row.given - 1)
        known = row.tokens if row.last is None else [*row.tokens, row.last]
        text = next((one for one in self.texts if list(one[: len(known)]) == known), None)
        if text is None or most < 1 or not row.given:
            return None
        right = text[len(known) : len(known) + most]
        tokens = [self.dice.randrange(4, 190) if self.dice.random() < self.wrong else token for token in right]
        return Guess(tokens, 9) if tokens else None


@pytest.fixture(scope="module", params=["later", pytest.param("at once", marks=only_here)])
def loaded(folder: Path, request: pytest.FixtureRequest) -> Loaded:
    """Whose steps MLX computes, or those that are computed at once."""
    made = load_folder(folder)
    assert made.step is None  # its heads are too small
    if request.param == "later":
        return made
    model = build_model("biases", made.vocabulary)
    return dataclasses.replace(made, model=model, step=build_step(model))


def plain_batch(loaded: Loaded, policy: DraftPolicy | None = None) -> Scheduler:
    step = None if policy else loaded.step
    made = Scheduler(loaded.model, loaded.tokenizer, running_max=PLACES, label="t", step=step)
    made._policy = policy
    prepare_batch(made, loaded, memory_bytes=1 << 30)
    return made


def told_batch(loaded: Loaded, texts: Sequence[Sequence[int]], wrong: float, seed: int = 0) -> Scheduler:
    made = plain_batch(loaded)

    def build() -> Told:
        stops = loaded.tokenizer.eos_token_ids
        told = Told(loaded.model, stop_tokens=stops, prefill_step_size=64, policy=Eager(), step=loaded.step)
        told.texts, told.wrong, told.dice = texts, wrong, random.Random(seed)
        return told

    made._new_generator = build  # type: ignore[method-assign]
    made._generator = build()
    return made


def add(batch: Scheduler, jobs: Sequence[dict[str, Any]]) -> list[tuple[list[Event], Any]]:
    outs = []
    for number, fields in enumerate(jobs):
        out: list[Event] = []
        usual = {"sampling": Sampling(), "reader": AnswerReader(stops=fields.get("stops", ())), "max_tokens": 24}
        batch.add(number, EngineJob(sink=out.extend, **{**usual, **{k: v for k, v in fields.items() if k != "stops"}}))
        outs.append((out, batch._sequences[number]))
    return outs


def run(batch: Scheduler, jobs: Sequence[dict[str, Any]]) -> list[tuple[str, Any, list[int]]]:
    outs = add(batch, jobs)
    while batch:
        try:
            batch.step()
        except RuntimeError:
            batch.recover(Failed(fault=Fault.SERVER_ERROR, message="a step failed"))
    return [(text_of(out), _end(out), list(state.tokens)) for out, state in outs]


def _end(out: Sequence[Event]) -> Any:
    last = out[-1]
    return (last.reason, last.usage.completion_tokens) if isinstance(last, Finish) else type(last)


def learn_texts(jobs: Sequence[dict[str, Any]], answers: Sequence[tuple[str, Any, list[int]]]) -> list[list[int]]:
    return [[*job["prompt"], *tokens] for job, (*_, tokens) in zip(jobs, answers, strict=True)]


PROMPTS = st.lists(st.lists(st.integers(4, 190), min_size=1, max_size=70), min_size=1, max_size=PLACES)
SAMPLINGS = st.one_of(
    st.just(Sampling()),
    st.builds(Sampling, temperature=st.sampled_from([0.5, 1.5]), seed=st.integers(0, 99), top_p=st.just(0.9)),
    st.builds(Sampling, frequency_penalty=st.just(1.0), repetition_penalty=st.just(1.3)),
    st.builds(Sampling, temperature=st.just(1.0), seed=st.integers(0, 99), presence_penalty=st.just(0.7)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompts=PROMPTS,
    sampling=SAMPLINGS,
    max_tokens=st.integers(1, 40),
    wrong=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 999),
    stops=st.sampled_from([(), ("e",), ("he", "ll")]),
)
def test_the_answers_are_those_without_guesses(loaded, prompts, sampling, max_tokens, wrong, seed, stops):
    """Text, reason and tokens: greedy, sampled with a seed, with penalties and stop strings, several at once, for
    guesses that are right always, mostly, at times or never; new prompts and reused ones."""
    jobs = [{"prompt": p, "sampling": sampling, "max_tokens": max_tokens, "stops": stops} for p in prompts]
    plain = [run(plain_batch(loaded), [job])[0] for job in jobs]
    batch = told_batch(loaded, learn_texts(jobs, plain), wrong, seed)

    assert run(batch, jobs) == plain
    assert run(batch, jobs) == plain


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=PROMPTS, samplings=st.lists(SAMPLINGS, min_size=PLACES, max_size=PLACES), seed=st.integers(0, 999))
def test_how_a_neighbour_is_drawn_changes_nothing(loaded, prompts, samplings, seed):
    """Each of several is drawn in its own way, with penalties or without, and gives what it gives alone."""
    jobs = [{"prompt": p, "sampling": one} for p, one in zip(prompts, samplings, strict=False)]
    plain = [run(plain_batch(loaded), [job])[0] for job in jobs]

    assert run(told_batch(loaded, learn_texts(jobs, plain), 0.1, seed), jobs) == plain


@pytest.mark.parametrize("stops", [True, False])
def test_what_was_computed_of_an_answer_is_kept_wherever_it_ends(loaded, stops):
    """Where a stop string is complete one token before the last, and in the same step, all that was read is reused."""
    free = {"prompt": PROMPT, "max_tokens": 12}
    (plain,) = run(plain_batch(loaded), [free])
    before, stopped = (loaded.tokenizer.decode(plain[2][:count]) for count in (10, 11))
    job = {**free, "stops": (stopped[len(before) :],) if stops else ()}
    batch = told_batch(loaded, learn_texts([free], [plain]), 0.0)
    batch._generator.dice = type("Most", (), {"randint": lambda *_: 30, "random": lambda *_: 1.0})()
    run(batch, [job])

    assert batch.prompts.memory.holds([*PROMPT, *plain[2][:11]])


def test_the_log_probabilities_are_those_of_each_place(loaded):
    """What comes with a drafted token is what would come with it alone."""
    seen: dict[bool, list[Any]] = {True: [], False: []}
    job = {"prompt": PROMPT, "max_tokens": 20}
    plain = run(plain_batch(loaded), [job])
    for told in (False, True):
        batch = told_batch(loaded, learn_texts([job], plain) if told else (), 0.2)
        take = batch._take

        def note(response: Any, now_s: float, take: Callable[..., None] = take, told: bool = told) -> None:
            seen[told].append((response.token, mx.array(response.logprobs)))
            take(response, now_s)

        batch._take = note  # type: ignore[method-assign]
        run(batch, [job])

    assert [token for token, _ in seen[True]] == [token for token, _ in seen[False]]
    for (_, one), (_, other) in zip(seen[True], seen[False], strict=True):
        assert mx.allclose(one, other, atol=1e-4).item()


def test_a_grammar_holds_whatever_is_guessed(loaded, constraints: Constraints):
    """Guesses aren't masked; what is drawn is, and the grammar moves by what stands alone."""
    constraint = constraints.of(ask(response_format={"type": "json_object"}, max_tokens=40))
    job = {"prompt": PROMPT, "max_tokens": 40, "constraint": constraint}
    plain = run(plain_batch(loaded), [job])
    for seed, wrong in enumerate((0.0, 0.2, 0.7)):
        assert run(told_batch(loaded, learn_texts([job], plain), wrong, seed), [job]) == plain
    assert plain[0][0].lstrip().startswith("{")


@pytest.mark.parametrize("after", [0, 1, 4, 11, 12])
def test_nothing_is_drawn_behind_a_processor_s_error(loaded, after):
    """What was drawn before it is the answer so far, as without guesses, and nothing behind it."""

    def raising(tokens: Any, logits: Any) -> Any:
        if tokens.size >= len(PROMPT) + after:
            raise RuntimeError("the grammar is broken")
        return logits

    free = {"prompt": PROMPT, "max_tokens": 12}
    texts = learn_texts([free], run(plain_batch(loaded), [free]))
    job = {**free, "processors": [raising]}
    plain = run(plain_batch(loaded), [job])
    batch = told_batch(loaded, texts, 0.0)

    assert run(batch, [job]) == plain
    assert len(plain[0][2]) == after
    assert run(batch, [free]) == run(plain_batch(loaded), [free])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_who_leaves_harms_nobody_and_is_kept(loaded, seed):
    """Whenever some leave or come, the others give what they give alone, and what was computed is all reused."""
    dice = random.Random(seed)
    prompts = [[dice.randrange(4, 190) for _ in range(dice.randint(1, 60))] for _ in range(PLACES)]
    jobs = [{"prompt": prompt, "max_tokens": dice.randint(1, 40)} for prompt in prompts]
    plain = [run(plain_batch(loaded), [job])[0] for job in jobs]
    batch = told_batch(loaded, learn_texts(jobs, plain), 0.3, seed)
    outs = add(batch, jobs)
    for _ in range(dice.randint(1, 10)):
        batch.step()
    gone = {number for number in list(batch._sequences) if dice.random() < 0.4}
    for number in gone:
        batch.remove(number)
    while batch:
        batch.step()

    for number, (out, _) in enumerate(outs):
        if number not in gone:
            assert (text_of(out), _end(out)) == plain[number][:2]
    assert run(batch, jobs) == plain


def test_a_step_that_raises_is_taken_back(loaded):
    """After a failed step everybody begins again from its own tokens, once, and gives what it gives alone."""
    jobs = [{"prompt": PROMPT}, {"prompt": [50, 60, 70]}]
    plain = [run(plain_batch(loaded), [job])[0] for job in jobs]
    batch = told_batch(loaded, learn_texts(jobs, plain), 0.3)
    steps, rows = [0], batch._generator._decoding
    read = rows.read

    def fail(*inputs: Any) -> Any:
        steps[0] += 1
        if steps[0] == 5:
            raise RuntimeError("not this time")
        return read(*inputs)

    rows.read = fail

    assert run(batch, jobs) == plain
    assert steps[0] == 5


def test_guesses_are_taken_from_what_was_said(loaded):
    """Whoever comes while others decode, each answer's guesses come from its own prompt and its tokens so far."""
    batch = plain_batch(loaded, Eager())
    for number in range(PLACES):
        prompt = list(range(40 + number, 60 + number)) * (1 + number)
        job = EngineJob(prompt=prompt, max_tokens=12, sink=lambda _: None)
        batch.add(number, job)
        batch.step()
    looked_up = 0
    while batch:
        for row in batch._generator._decoding.rows:
            assert row.record.lookup is None or row.record.lookup._text == batch._by_uid[row.uid].record
            looked_up += row.record.lookup is not None
        batch.step()

    assert looked_up > PLACES


def test_by_itself_it_guesses_from_prompt_and_answer(loaded):
    """An answer that says its own tokens of five ago again: the same text, and most of its tokens are right guesses,
    which take no step of their own."""

    def repeat(tokens: Any, logits: Any) -> Any:
        return logits.at[:, tokens[-5]].add(1000.0)

    job = {"prompt": PROMPT, "max_tokens": 60, "processors": [repeat]}
    plain = run(plain_batch(loaded), [job])
    batch = plain_batch(loaded, Eager())

    assert run(batch, [job]) == plain
    assert batch._generator.guessed_tokens >= batch._generator.right_tokens > 30
