"""What sequences of a model may share, for mlx-lm's architectures with random weights, several seeds each."""

import random
import statistics
from typing import Any

import pytest

from deployments.tiers.mlx import batch_check
from deployments.tiers.mlx.batch_check import _cuts_places_into_blocks, choose_sharing
from deployments.tiers.mlx.decoding.generators import Sharing
from tests.support.family_rig import Asked, add, begin, load, measure, run
from tests.support.random_models import build_family

# fmt: off
RIGHT = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss",
    "granitemoehybrid", "lfm2", "lfm2_moe", "falcon_h1", "mamba2", "kimi_linear", "deepseek_v3", "glm4_moe", "phi3",
    "cohere2", "mimo_v2_flash", "olmo3", "plamo2",
)
# fmt: on
SEEDS = 3
PADDED_WRONG = {
    "nemotron_h": 8,
    "rwkv7": 6,
    "baichuan_m1": 6,
    "jamba": 3,
    "mamba": 3,
    "bailing_moe_linear": 3,
    "recurrent_gemma": 3,
    "olmo_hybrid": 3,
}
DENSE = {
    *("llama", "qwen2", "qwen3", "gemma3_text", "gemma3n", "lfm2", "falcon_h1", "mamba2", "phi3", "cohere2", "olmo3"),
    *("plamo2", "rwkv7", "baichuan_m1", "mamba", "recurrent_gemma", "olmo_hybrid", "nemotron_h"),
}
ALONE = ("minimax_m3_vl", "afm7", "gpt_bigcode", "llama4", "deepseek_v41", "gemma2")


def pairs(names: dict[str, int]) -> list[Any]:
    """Each architecture with its first seed, and those with the others `make nightly` runs."""
    first = [pytest.param(name, 0) for name in names]
    return first + [
        pytest.param(name, seed, marks=pytest.mark.further) for name, many in names.items() for seed in range(1, many)
    ]


@pytest.mark.parametrize(("name", "seed"), pairs(dict.fromkeys(RIGHT, SEEDS)))
def test_a_model_that_is_right_shares_everything(name: str, seed: int) -> None:
    """Law: no seed of a right architecture is taken for a wrong one."""
    assert choose_sharing(load(build_family(name, seed)), 8) is Sharing.ALL


@pytest.mark.parametrize(("name", "seed"), pairs(PADDED_WRONG))
def test_what_padding_harms_is_prefilled_one_by_one(name: str, seed: int) -> None:
    """Law: none of these passes in any seed; decoding next to each other does them no harm."""
    assert choose_sharing(load(build_family(name, seed)), 8) is Sharing.DECODING


@pytest.mark.parametrize(("name", "seed"), pairs(dict.fromkeys(ALONE, SEEDS)))
def test_what_no_batch_computes_is_answered_alone(name: str, seed: int) -> None:
    """Law: whether a batch of them raises or is wrong."""
    assert choose_sharing(load(build_family(name, seed)), 8) is Sharing.NONE


@pytest.mark.parametrize("name", ["llama", "nemotron_h", "minimax_m3_vl", "gpt_bigcode", "llama4"])
def test_a_tier_of_one_place_takes_whatever_computes_one(name: str) -> None:
    """Law: where sequences never meet, only what raises for one of them counts."""
    alone = choose_sharing(load(build_family(name, 0)), 1)
    assert alone is (Sharing.NONE if name == "llama4" else Sharing.ALL)


class Rounded:
    """A model in bfloat16 whose logits depend on how much a step reads, as those of a GPU do: by some units in the last
    place. `swaps`: its sequences get another's answers."""

    def __init__(self, name: str, seed: int, *, units: float = 4.0, swaps: bool = False) -> None:
        import mlx.core as mx

        more = {"hybrid_override_pattern": "M*M-"} if name == "nemotron_h" else {}  # no experts
        self._model, self._units, self._swaps = build_family(name, seed, **more), units, swaps
        self._model.set_dtype(mx.bfloat16)

    def __call__(self, tokens: Any, **options: Any) -> Any:
        import mlx.core as mx

        logits = self._model(tokens[::-1] if self._swaps else tokens, **options)
        noise = mx.random.normal(logits.shape, key=mx.random.key(tokens.size)) * mx.std(logits)
        return logits + (noise * self._units * mx.finfo(mx.bfloat16).eps).astype(mx.bfloat16)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


# Experts in 16 bits are a GPU's.
@pytest.mark.parametrize(("name", "seed"), pairs(dict.fromkeys([n for n in RIGHT if n in DENSE], SEEDS)))
def test_rounding_to_16_bits_is_no_difference(name: str, seed: int) -> None:
    """Law: a right model is right with coarse numbers too."""
    assert choose_sharing(load(Rounded(name, seed)), 8) is Sharing.ALL


@pytest.mark.parametrize(("name", "seed"), pairs({n: many for n, many in PADDED_WRONG.items() if n in DENSE}))
def test_padding_is_seen_in_16_bits(name: str, seed: int) -> None:
    """Law: what padding does is found however coarse the numbers are."""
    assert choose_sharing(load(Rounded(name, seed)), 8) is Sharing.DECODING


@pytest.mark.parametrize("seed", range(SEEDS))
def test_mixed_up_sequences_are_seen_in_16_bits(seed: int) -> None:
    """Law: so is a sequence that gets another's answer."""
    assert choose_sharing(load(Rounded("llama", seed, swaps=True)), 8) is Sharing.NONE


def test_one_that_always_raises_shares_nothing() -> None:
    """Law: the check itself doesn't raise; the first tokens that are generated say why."""
    model = build_family("llama", 0)

    class Broken:
        def __call__(self, *inputs: Any, **options: Any) -> Any:
            raise RuntimeError("broken")

        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

    assert choose_sharing(load(Broken()), 8) is Sharing.NONE


def generate(model: Any, lengths: tuple[int, ...]) -> list[list[Any]]:
    """The log-probabilities of three tokens behind each prompt, by mlx-lm's own generator."""
    from mlx_lm.generate import BatchGenerator

    dice = random.Random(1)
    prompts = [[dice.randrange(4, 120) for _ in range(length)] for length in lengths]
    generator = BatchGenerator(model)
    uids = generator.insert(prompts, [3] * len(prompts))
    found: dict[int, list[Any]] = {uid: [] for uid in uids}
    while drawn := generator.next_generated():
        for one in drawn:
            found[one.uid].append((one.token, one.logprobs))
    return [found[uid] for uid in uids]


def compute(model: Any, length: int, skipped: int, tokens: list[int]) -> Any:
    """The log-probabilities behind a prompt of `generate`, by the model itself."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    dice = random.Random(1)
    prompt = [dice.randrange(4, 120) for _ in range(skipped + length)][skipped:]
    logits = model(mx.array([[*prompt, *tokens[:-1]]]), cache=make_prompt_cache(model))[0, length - 1 :]
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def is_right_in_mlx_lm(name: str) -> bool:
    """Whether each of three prompts gets in mlx-lm's own batch what the model computes of it."""
    import mlx.core as mx

    model, lengths = build_family(name, 0), (60, 45, 5)
    try:
        found = generate(model, lengths)
    except (TypeError, ValueError):
        return False
    for number, (length, drawn) in enumerate(zip(lengths, found, strict=True)):
        right = compute(model, length, sum(lengths[:number]), [token for token, _ in drawn])
        apart = mx.abs(right - mx.stack([logprobs for _, logprobs in drawn]))
        if mx.max(apart).item() > batch_check._TOLERANCE:
            return False
    return True


@pytest.mark.parametrize("name", [*PADDED_WRONG, *ALONE])
def test_the_fault_is_mlx_lms_own(name: str) -> None:
    """Law: plain mlx-lm, without anything of ours, computes these wrongly or raises. Where this fails mlx-lm has mended
    it: the name goes from the list above, and with `minimax_m3_vl` goes `_cuts_places_into_blocks`."""
    assert not is_right_in_mlx_lm(name)


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "gemma3_text", "lfm2"])
def test_the_measure_finds_no_fault_where_there_is_none(name: str) -> None:
    """Law: the same measure finds these right."""
    assert is_right_in_mlx_lm(name)


@pytest.mark.parametrize("name", [*RIGHT, *PADDED_WRONG, "kimi_k3", "deepseek_v32", "lille-130m"])
def test_no_other_attention_cuts_blocks(name: str) -> None:
    """Law: only an attention whose blocks are of the cache's places is known by its name."""
    assert not _cuts_places_into_blocks(build_family(name, 0))


ROUNDING = 0.002
PREFILLED_ALONE = ("nemotron_h", "rwkv7", "baichuan_m1")

TOGETHER = ("llama", "qwen3", "qwen3_next", "gemma3_text", "granitemoehybrid", "lfm2")


def assert_right(model: Any, asked: list[Asked], near_ties: bool = False) -> None:
    """`near_ties`: of the tokens that attention chooses, or the experts; rounding decides those."""
    for one in asked:
        apart = measure(model, one)
        assert (statistics.median(apart) if near_ties else max(apart)) <= ROUNDING, (one.prompt, apart)


@pytest.mark.parametrize(("name", "seed"), pairs(dict.fromkeys((*PREFILLED_ALONE, *ALONE, *TOGETHER), SEEDS)))
def test_whatever_is_asked_together_each_gets_what_is_its_own(name: str, seed: int) -> None:
    """Prompts of any length that come at any time, then the next turn of some of them, and others that begin alike."""
    dice, model = random.Random(seed), build_family(name, seed)
    batch = begin(model)

    def draw(tokens: int) -> list[int]:
        return [dice.randrange(4, 120) for _ in range(tokens)]

    def ask(prompts: list[list[int]]) -> list[Asked]:
        asked = []
        for prompt in prompts:
            asked.append(add(batch, prompt, dice.randint(2, 9), [len(prompt) // 2]))
            for _ in range(dice.choice([0, 0, 1, 3])):
                batch.step()
        run(batch)
        return asked

    first = ask([draw(dice.choice([1, 2, 5, 12, 30, 60])) for _ in range(4)])
    turns = [[*one.prompt, *one.tokens, *draw(dice.randint(1, 9))] for one in first[:2]]
    edits = [[*one.prompt[: len(one.prompt) * 2 // 3], *draw(4)] for one in first[2:]]
    assert_right(model, first + ask(turns + edits), near_ties=name == "minimax_m3_vl")
