"""What sequences of a model may share, for mlx-lm's architectures with random weights, several seeds each."""

import random
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from deployments.tiers.mlx.batch_check import _cuts_places_into_blocks, _Mute, choose_sharing
from deployments.tiers.mlx.decoding.generators import Sharing
from tests.support.random_models import build_family
from tests.zoo.families import find_family
from tests.zoo.faults import measure
from tests.zoo.rig import TOLERANCE

# fmt: off
RIGHT = (
    "llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss",
    "granitemoehybrid", "lfm2", "lfm2_moe", "falcon_h1", "mamba2", "kimi_linear", "deepseek_v3", "glm4_moe", "phi3",
    "cohere2", "mimo_v2_flash", "olmo3", "plamo2",
)
# fmt: on
SEEDS = 3
PADDED_WRONG = {"nemotron_h": 8, "rwkv7": 6, "baichuan_m1": 6}
PADDED_WRONG |= dict.fromkeys(("jamba", "mamba", "bailing_moe_linear", "recurrent_gemma", "olmo_hybrid"), 3)
DENSE = {
    *("llama", "qwen2", "qwen3", "gemma3_text", "gemma3n", "lfm2", "falcon_h1", "mamba2", "phi3", "cohere2", "olmo3"),
    *("plamo2", "rwkv7", "baichuan_m1", "mamba", "recurrent_gemma", "olmo_hybrid", "nemotron_h"),
}
ALONE = ("minimax_m3_vl", "afm7", "gpt_bigcode", "llama4", "deepseek_v41", "gemma2")
ALL = {**dict.fromkeys((*RIGHT, *ALONE), SEEDS), **PADDED_WRONG}


class Numbers(_Mute):
    """A tokenizer without text: any text is some tokens of the model's, none of which ends an answer."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        dice = random.Random(text)
        return [dice.randrange(4, 120) for _ in text]


def load(model: Any) -> Any:
    """What the check takes of a loaded model."""
    return SimpleNamespace(model=model, tokenizer=Numbers(), artifact=SimpleNamespace(source="here"), step=None)


def pairs(names: dict[str, int]) -> list[Any]:
    """Each architecture with its first seed, and those with the others `make nightly` runs."""
    more = [(name, seed) for name, many in names.items() for seed in range(1, many)]
    return [(name, 0) for name in names] + [pytest.param(*one, marks=pytest.mark.further) for one in more]


@pytest.mark.parametrize(("name", "seed"), pairs(ALL))
def test_each_architecture_shares_what_its_family_may(name: str, seed: int) -> None:
    """Law: no seed of a right architecture is taken for a wrong one; what padding harms is prefilled one by one, and
    what no batch computes, whether it raises or is wrong, is answered alone."""
    assert choose_sharing(load(build_family(name, seed)), 8) is find_family(name).sharing


@pytest.mark.parametrize("name", ["llama", "nemotron_h", "minimax_m3_vl", "gpt_bigcode", "llama4"])
def test_a_tier_of_one_place_takes_whatever_computes_one(name: str) -> None:
    """Law: where sequences never meet, only what raises for one of them counts."""
    alone = choose_sharing(load(build_family(name, 0)), 1)
    assert alone is (Sharing.NONE if name == "llama4" else Sharing.ALL)


class Rounded:
    """A model in bfloat16 whose logits depend on how much a step reads, as those of a GPU do: by some units in the last
    place. `swaps`: its sequences get another's answers."""

    def __init__(self, name: str, seed: int, *, units: float = 4.0, swaps: bool = False) -> None:
        more = {"hybrid_override_pattern": "M*M-"} if name == "nemotron_h" else {}  # no experts
        self._model, self._units, self._swaps = build_family(name, seed, **more), units, swaps
        self._model.set_dtype(mx.bfloat16)

    def __call__(self, tokens: Any, **options: Any) -> Any:
        logits = self._model(tokens[::-1] if self._swaps else tokens, **options)
        noise = mx.random.normal(logits.shape, key=mx.random.key(tokens.size)) * mx.std(logits)
        return logits + (noise * self._units * mx.finfo(mx.bfloat16).eps).astype(mx.bfloat16)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


# Experts in 16 bits are a GPU's.
@pytest.mark.parametrize(("name", "seed"), pairs({name: many for name, many in ALL.items() if name in DENSE}))
def test_coarse_numbers_change_nothing(name: str, seed: int) -> None:
    """Law: a right model is right in 16 bits too, and what padding does is found however coarse the numbers are."""
    assert choose_sharing(load(Rounded(name, seed)), 8) is find_family(name).sharing


@pytest.mark.parametrize("seed", range(SEEDS))
def test_mixed_up_sequences_are_seen_in_16_bits(seed: int) -> None:
    """Law: so is a sequence that gets another's answer."""
    assert choose_sharing(load(Rounded("llama", seed, swaps=True)), 8) is Sharing.NONE


def test_one_that_always_raises_shares_nothing() -> None:
    """Law: the check itself doesn't raise; the first tokens that are generated say why."""

    class Broken(Rounded):
        def __call__(self, *inputs: Any, **options: Any) -> Any:
            raise RuntimeError("broken")

    assert choose_sharing(load(Broken("llama", 0)), 8) is Sharing.NONE


@pytest.mark.parametrize("name", [*PADDED_WRONG, *ALONE])
def test_the_fault_is_mlx_lms_own(name: str) -> None:
    """Law: plain mlx-lm, without anything of ours, computes these wrongly or raises. Where this fails mlx-lm has mended
    it: the name goes from the list above, and with `minimax_m3_vl` goes `_cuts_places_into_blocks`."""
    assert measure(find_family(name).fault, build_family(name, 0)) > TOLERANCE


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "gemma3_text", "lfm2"])
def test_the_measure_finds_no_fault_where_there_is_none(name: str) -> None:
    """Law: the same measure finds these right."""
    assert all(measure(fault, build_family(name, 0)) <= TOLERANCE for fault in ("padding", "neighbors"))


@pytest.mark.parametrize("name", ["kimi_k3", "deepseek_v32", "lille-130m"])
def test_no_other_attention_cuts_blocks(name: str) -> None:
    """Law: only an attention whose blocks are of the cache's places is known by its name."""
    assert not _cuts_places_into_blocks(build_family(name, 0))
