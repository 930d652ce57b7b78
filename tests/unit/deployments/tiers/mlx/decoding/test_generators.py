"""One sequence at a time: each gets what mlx-lm itself generates, whoever waits, leaves or is kept."""

import random
from typing import Any

import mlx.core as mx
import pytest

from deployments.tiers.mlx.decoding.generators import _SingleGenerator
from tests.support.random_models import build_family

CHUNK = 8


@pytest.fixture(scope="module", params=["llama", "llama4", "deepseek_v41", "lfm2"])
def model(request: pytest.FixtureRequest) -> Any:
    """Plain keys and values, chunks, a cache of the model's own, and states."""
    return build_family(request.param, 1)


def generate(model: Any, prompt: list[int], count: int) -> list[int]:
    from mlx_lm.generate import generate_step

    return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=count)]


def draw_prompts(seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(4, 120) for _ in range(dice.choice([1, 2, 9, 17, 30]))] for _ in range(4)]


def insert(generator: _SingleGenerator, prompt: list[int], count: int, cache: Any = None, held: Any = ()) -> int:
    """Take a sequence, the first tokens of which are held by the cache that was kept."""
    half = (len(held) + len(prompt)) // 2
    parts = [part for part in (prompt[len(held) : half], prompt[max(half, len(held)) :]) if part]
    caches = None if cache is None else [cache]
    given = {"max_tokens": [count], "caches": caches, "all_tokens": [list(held)]}
    (uid,) = generator.insert_segments([parts], **given, samplers=[None], logits_processors=[()])
    return uid


def drain(generator: _SingleGenerator) -> tuple[dict[int, list[int]], dict[int, Any]]:
    drawn, last = dict[int, list[int]](), dict[int, Any]()
    while generator._rows:
        for one in generator.next()[1]:
            drawn.setdefault(one.uid, []).append(one.token)
            last[one.uid] = one
    return drawn, last


@pytest.mark.parametrize("seed", range(3))
def test_each_gets_what_mlx_lm_generates(model: Any, seed: int) -> None:
    """To the token, and in order of arrival; with the last token come the cache and what it holds."""
    prompts = draw_prompts(seed)
    generator = _SingleGenerator(model, stop_tokens=(), prefill_step_size=CHUNK)
    uids = [insert(generator, prompt, 5) for prompt in prompts]
    drawn, last = drain(generator)

    assert list(drawn) == uids
    for uid, prompt in zip(uids, prompts, strict=True):
        assert drawn[uid] == generate(model, prompt, 5)
        assert last[uid].finish_reason == "length"
        assert last[uid].all_tokens == [*prompt, *drawn[uid][:-1]]


def test_a_stop_token_ends_an_answer(model: Any) -> None:
    """It is the last one that is given."""
    prompt = draw_prompts(5)[0]
    tokens = generate(model, prompt, 5)
    generator = _SingleGenerator(model, stop_tokens=[tokens[2]], prefill_step_size=CHUNK)
    uid = insert(generator, prompt, 5)
    drawn, last = drain(generator)

    assert drawn[uid] == tokens[: tokens.index(tokens[2]) + 1]
    assert last[uid].finish_reason == "stop"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_copied_serves_another_and_isnt_written_to(model: Any, seed: int) -> None:
    """At any step: the cache holds the tokens it says, and both go on as if they were alone."""
    dice, prompt = random.Random(seed), [*range(10, 40)]
    generator = _SingleGenerator(model, stop_tokens=(), prefill_step_size=CHUNK)
    uid, given = insert(generator, prompt, 6), []
    for _ in range(dice.randint(1, 7)):
        given += [one.token for one in generator.next()[1]]
    cache, held = generator.extract_cache([uid])[uid]
    drawn, _ = drain(generator)
    other = insert(generator, [*held, 7, 9], 4, cache, held)
    shorter, last = drain(generator)

    assert [*given, *drawn.get(uid, [])] == generate(model, prompt, 6)
    assert shorter[other] == generate(model, [*held, 7, 9], 4)
    assert last[other].all_tokens[: len(held)] == held


def test_who_leaves_makes_room(model: Any) -> None:
    """Taken out in the middle, or before its turn: the next one begins."""
    one, two, three, _ = draw_prompts(6)
    generator = _SingleGenerator(model, stop_tokens=(), prefill_step_size=CHUNK)
    uids = [insert(generator, prompt, 4) for prompt in (one, two, three)]
    generator.next()
    generator.remove(uids[:2])
    drawn, _ = drain(generator)

    assert drawn == {uids[2]: generate(model, three, 4)}


def test_the_work_is_counted(model: Any) -> None:
    """Prompt tokens but the last, which the first drawn token reads; and where each segment of the prompt ends."""
    generator = _SingleGenerator(model, stop_tokens=(), prefill_step_size=CHUNK)
    uid, progress, read, drawn = insert(generator, list(range(10, 30)), 3), [], 0, 0
    while generator._rows:
        with generator.stats() as work:
            progress += generator.next()[0]
        read, drawn = read + work.prompt_tokens, drawn + work.generation_tokens

    assert (read, drawn) == (19, 3)
    assert [one.progress[0] for one in progress if one.end_of_segment] == [10, 20]
    assert [(one.uid, one.progress) for one in progress if one.end_of_prompt] == [(uid, (20, 20))]


@pytest.mark.parametrize(("prompt", "count"), [([], 4), ([5], 0)])
def test_what_cant_be_drawn_is_refused(model: Any, prompt: list[int], count: int) -> None:
    """Without a prompt, or without room for a token."""
    with pytest.raises(ValueError, match="needs a prompt"):
        insert(_SingleGenerator(model, stop_tokens=(), prefill_step_size=CHUNK), prompt, count)
