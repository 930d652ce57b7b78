"""The first token is drawn from the step that reads the end of the prompt, where that can say so, and is the same."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.step import build_step
from deployments.tiers.mlx.decoding.generators import _LookupGenerator
from deployments.tiers.mlx.decoding.ragged_batch import SampledToken
from tests.support.kernels import only_here
from tests.support.random_models import build_model

VOCABULARY = 200
pytestmark = [pytest.mark.model, only_here]


@pytest.fixture(scope="module")
def model() -> Any:
    return build_model("biases", VOCABULARY)


def build_generator(model: Any, *, at_once: bool, chunk: int = 64, stops: tuple[int, ...] = ()) -> _LookupGenerator:
    step = build_step(model) if at_once else None
    return _LookupGenerator(model, stop_tokens=stops, prefill_step_size=chunk, policy=None, step=step)


def insert(generator: _LookupGenerator, parts: list[list[int]], max_tokens: int, processors: Any = ()) -> int:
    (uid,) = generator.insert_segments(
        [parts], max_tokens=[max_tokens], caches=None, all_tokens=[[]], samplers=[None], logits_processors=[processors]
    )
    return uid


def run(generator: _LookupGenerator, uids: list[int]) -> tuple[dict[int, list[int]], dict[int, Any]]:
    """Each answer, and the last word of each with its cache; checks what is said of the prompts on the way."""
    answers: dict[int, list[int]] = {uid: [] for uid in uids}
    last, read = {}, set()
    while len(last) < len(uids):
        progress, drawn = generator.next()
        read |= {one.uid for one in progress if one.end_of_prompt}
        for one in drawn:
            assert one.uid in read  # nobody answers a prompt that isn't read
            answers[one.uid].append(one.token)
            if one.finish_reason:
                last[one.uid] = one
    return answers, last


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=1, max_size=4),
    chunk=st.sampled_from([1, 7, 64]),
    max_tokens=st.integers(1, 5),
    seed=st.integers(0, 999),
)
def test_it_is_the_one_that_a_step_of_its_own_draws(model, prompts, chunk, max_tokens, seed):
    """Whatever the prompts, segments and chunks: answers and ends are the same, and what is kept is what it says."""
    dice = random.Random(seed)
    parts = [[[dice.randrange(VOCABULARY) for _ in range(size)] for size in sizes] for sizes in prompts]
    stops = tuple(dice.sample(range(VOCABULARY), 60))
    found = []
    for at_once in (True, False):
        generator = build_generator(model, at_once=at_once, chunk=chunk, stops=stops)
        uids = [insert(generator, one, max_tokens) for one in parts]
        answers, last = run(generator, uids)
        assert not any(map(len, generator._parts))
        found.append((answers, {uid: one.finish_reason for uid, one in last.items()}))
        for uid, segments in zip(uids, parts, strict=True):
            text, kept = [*itertools.chain(*segments), *answers[uid]], last[uid]
            assert kept.all_tokens in (text, text[:-1])  # MLX may have begun to read the last token
            assert kept.prompt_cache[0].offset == len(kept.all_tokens)
    assert found[0] == found[1]


@pytest.mark.parametrize(("parts", "turns"), [([30], 1), ([10, 20], 2), ([29, 1], 2)])
def test_a_prompt_of_one_chunk_is_answered_in_one_turn(model, parts, turns):
    """A turn reads a segment to its end, where its cache may be wanted; the last one gives the first token."""
    generator = build_generator(model, at_once=True)
    insert(generator, [[7] * size for size in parts], 9)
    drawn: list[SampledToken] = []
    for _ in range(turns):
        assert not drawn
        drawn = generator.next()[1]
    assert len(drawn if parts[-1] > 1 else generator.next()[1]) == 1  # a token by itself is read by decoding


def test_whoever_leaves_behind_his_first_token_is_kept_with_his_prompt(model):
    """Between the first token and the second all of the prompt is there, and nothing else."""
    generator = build_generator(model, at_once=True)
    uid = insert(generator, [list(range(30))], 9)
    generator.next()
    cache, tokens = generator.extract_cache([uid])[uid]
    generator.remove([uid])

    assert tokens == list(range(30))
    assert cache[0].offset == 30
    assert generator.next() == ([], [])
