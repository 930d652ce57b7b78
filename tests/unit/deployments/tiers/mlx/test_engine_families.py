"""Engines on architectures that mlx-lm can't batch rightly: they start, say so, and each request gets its own text."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from deployments.models.cache_folder import Say
from deployments.models.sources import parse_source
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.warm_up import PromptDisk
from reliability.types import Finish
from tests.support import tiny_model as tiny
from tests.support.engine_rig import Moody, Rig, text_of, whole
from tests.support.model_configs import build_config
from tests.support.random_models import build_family

PROMPT = list(range(40, 140))
# Whether sequences share decoding, whether what is kept can be cut back, and so what another session finds of a prompt
# after a restart.
FACTS = {
    "nemotron_h": (True, False, 0),
    "llama4": (False, False, 0),
    "deepseek_v41": (False, False, 0),
    "afm7": (False, True, 70),
    "gpt_bigcode": (False, True, 70),
    "gemma2": (False, True, 70),
    "minimax_m3_vl": (False, True, 70),
}


def build(name: str) -> Any:
    inner, size = build_config(name, "float32").get("text_config"), {"vocab_size": len(tiny.TOKENS)}
    return build_family(name, 1, **size, **({"text_config": inner | size} if inner else {}))


# One of each kind; `make nightly` runs all.
EACH_TIME = ("nemotron_h", "llama4", "minimax_m3_vl")
NAMES = [name if name in EACH_TIME else pytest.param(name, marks=pytest.mark.further) for name in FACTS]


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_and_answers(folder: Path, tmp_path: Path, name: str) -> None:
    """Law: requests that come together get the texts that each gets alone; the status and its warning say how they are
    computed; and what was computed is found after a restart as far as its kind allows."""

    class Family(Rig):
        def _load(self, say: Say) -> Loaded:
            loaded = load(parse_source(f"path:{self._folder}"), cache_dir=None, context_tokens=None, say=say)
            self.model = Moody(build(name))
            return dataclasses.replace(loaded, model=self.model, warning=None)

    def begin() -> Rig:
        return Family(folder, running_max=4, prompt_disk=PromptDisk(tmp_path / "prompts", 1 << 30))

    shared, cuttable, found = FACTS[name]
    rig = begin()
    loaded = rig.engine.phase.loaded
    assert loaded is not None
    assert (loaded.batched_as_alone, loaded.cuttable) == (shared, cuttable)
    assert loaded.warning is not None
    assert loaded.warning.startswith("prompts are prefilled one" if shared else "requests are answered one")
    outs = [rig.ask(prompt=PROMPT[k:], max_tokens=12)[1] for k in (0, 30, 60)]
    together = [text_of(whole(out)) for out in outs]
    assert [text_of(rig.answer(prompt=PROMPT[k:], max_tokens=12)) for k in (0, 30, 60)] == together
    rig.engine.close()
    rig = begin()
    last = rig.answer(prompt=[*PROMPT[:70], 9, 9], max_tokens=6)[-1]
    rig.engine.close()
    assert isinstance(last, Finish)
    assert last.usage is not None
    assert last.usage.cached_tokens == found
