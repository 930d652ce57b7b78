"""A model with sliding windows: what it keeps can't be cut back once the window has moved, so it lives by checkpoints.

The model is Gemma 3's own code of mlx-lm with a few random weights: three of four layers see 16 tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.models.cache_folder import Say
from deployments.models.sources import parse_source
from deployments.tiers.mlx.loading import Loaded, load
from reliability.types import Event, Finish, Usage
from tests.support import tiny_model as tiny
from tests.support.engine_rig import Moody, Rig, text_of, whole

SYSTEM = list(range(40, 80))
ONE, OTHER = [*SYSTEM, *range(90, 110)], [*SYSTEM, *range(120, 150)]


class Windowed(Rig):
    """An engine on such a model."""

    def _load(self, say: Say) -> Loaded:
        loaded = load(parse_source(f"path:{self._folder}"), cache_dir=None, context_tokens=None, say=say)
        import mlx.core as mx
        from mlx_lm.models.gemma3_text import Model, ModelArgs

        mx.random.seed(3)
        model = Model(
            ModelArgs(
                model_type="gemma3_text",
                hidden_size=32,
                num_hidden_layers=4,
                intermediate_size=64,
                num_attention_heads=2,
                head_dim=16,
                vocab_size=len(tiny.TOKENS),
                sliding_window=16,
                sliding_window_pattern=4,
                query_pre_attn_scalar=16,
            )
        )
        mx.eval(model.parameters())
        self.model = Moody(model)
        return dataclasses.replace(loaded, model=self.model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("windows") / "tiny")


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    made = Windowed(folder)
    yield made
    made.engine.close()


@pytest.fixture
def forgetful(folder: Path) -> Iterator[Rig]:
    made = Windowed(folder, prompt_cache_bytes=0)
    yield made
    made.engine.close()


def usage_of(events: list[Event]) -> Usage:
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.usage is not None
    return last.usage


def test_the_engine_knows_that_it_cant_cut(rig: Rig) -> None:
    """Law: a model with a window is known as one, and its batch answers as each sequence alone."""
    loaded = rig.engine.phase.loaded
    assert loaded is not None
    assert (loaded.cuttable, loaded.batched_as_alone) == (False, True)


def test_a_checkpoint_serves_another_session(rig: Rig, forgetful: Rig) -> None:
    """Law: behind a checkpoint both reuse exactly what lies before it, and the texts are those without reuse; without a
    checkpoint nothing is reused."""
    runs = [rig.answer(prompt=prompt, checkpoints=[len(SYSTEM)]) for prompt in (ONE, OTHER, ONE)]
    assert [usage_of(run).cached_tokens for run in runs] == [0, len(SYSTEM), len(SYSTEM)]
    plain = [forgetful.answer(prompt=prompt) for prompt in (ONE, OTHER, ONE)]
    assert [text_of(run) for run in runs] == [text_of(run) for run in plain]
    assert [usage_of(run).cached_tokens for run in plain] == [0, 0, 0]


def test_the_next_turn_goes_on_where_the_last_one_ended(rig: Rig, forgetful: Rig) -> None:
    """Law: a prompt that continues a whole answer reuses prompt and answer; the text is that without reuse."""
    seen: list[list[int]] = []

    def watching(tokens: Any, logits: Any) -> Any:
        seen.append(tokens.tolist())
        return logits

    rig.answer(prompt=ONE, max_tokens=8, processors=[watching])
    said = max(seen, key=len)[: len(ONE) + 8]
    turn = [*said, 50, 51, 52]
    reused, plain = rig.answer(prompt=turn), forgetful.answer(prompt=turn)
    assert usage_of(reused).cached_tokens == len(ONE) + 8
    assert text_of(reused) == text_of(plain)


def test_a_failed_step_is_survived(rig: Rig) -> None:
    """Law: as with any model, every text after a step that raised is what it is alone."""
    alone = [text_of(rig.answer(prompt=prompt, max_tokens=30)) for prompt in (ONE, OTHER)]
    rig.model.moving.clear()
    outs = [rig.ask(prompt=prompt, max_tokens=30)[1] for prompt in (ONE, OTHER)]
    rig.model.breaks_in = 5
    rig.model.moving.set()
    assert [text_of(whole(out)) for out in outs] == alone
