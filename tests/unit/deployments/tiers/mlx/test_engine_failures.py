"""An engine whose steps raise, whose model stands still or never comes: every request ends, and the others go on."""

import os
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deployments.models.cache_folder import Say
from deployments.models.sources import ModelUnavailable
from deployments.tiers.mlx import engine as engine_module
from deployments.tiers.mlx.engine import Engine
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.sequence import EngineJob
from reliability.types import Event, Fault, Finish, TierState
from tests.support.engine_rig import PATIENCE_S, PROMPT, Rig, fault_of, load_folder, text_of, whole
from tests.support.tier_asking import failed


def raising(after: int) -> Callable[[Any, Any], Any]:
    """A logits processor that raises once it has seen so many tokens of answer."""

    def process(tokens: Any, logits: Any) -> Any:
        if tokens.size >= len(PROMPT) + after:
            raise RuntimeError("no")
        return logits

    return process


def misshapen(tokens: Any, logits: Any) -> Any:
    return logits[:, :1]


GREEDY, SAMPLED = Sampling(), Sampling(temperature=1.2, seed=7, repetition_penalty=1.3)
# The step that raises, after so many events of the first: each with one way to sample, and nightly with the other.
STEPS = [(GREEDY, 0, 1), (SAMPLED, 1, 1), (GREEDY, 3, 1), (SAMPLED, 1, 2), (GREEDY, 1, 3), (SAMPLED, 3, 5)]
OTHERS = [(SAMPLED if sampling is GREEDY else GREEDY, *step) for sampling, *step in STEPS]
FAILED_STEPS = [*STEPS, *(pytest.param(*one, marks=pytest.mark.further) for one in OTHERS)]


class TestFailure:
    @pytest.mark.parametrize("processor", [raising(0), raising(5), misshapen])
    def test_a_processor_that_raises_ends_its_own_sequence_only(self, rig: Rig, processor: Any) -> None:
        """Law: whenever one sequence's processor raises, or gives nonsense, that sequence fails with what it used, and
        its neighbour's text is what it is alone."""
        alone = text_of(rig.answer(max_tokens=40))
        (_, neighbour), (_, culprit) = rig.ask(max_tokens=40), rig.ask(processors=[processor])
        ended = failed(whole(culprit))
        assert ended.fault is Fault.SERVER_ERROR
        assert ended.usage.completion_tokens <= 5
        assert text_of(whole(neighbour)) == alone
        assert rig.engine.healthy()

    @pytest.mark.parametrize(("sampling", "after", "call"), FAILED_STEPS)
    def test_survivors_of_a_failed_step_go_on_as_if_nothing_had_happened(self, rig, sampling, after, call):
        """Law: after one step that raised, in prefill or in decoding, every sequence gives the text it gives alone, no
        token twice and none left out, also with a seed and with penalties."""
        alone = text_of(rig.answer(max_tokens=40, sampling=sampling))
        _, one = rig.ask(max_tokens=40, sampling=sampling)
        events: list[Event] = []
        while len(events) < after:
            events += one.get(timeout=PATIENCE_S)
        rig.model.moving.clear()
        _, two = rig.ask(max_tokens=40, sampling=sampling)
        rig.model.breaks_in = call
        rig.model.moving.set()
        last = (events := events + ([] if events and isinstance(events[-1], Finish) else whole(one)))[-1]
        assert (text_of(events), text_of(whole(two))) == (alone, alone)
        assert (type(last), last.usage.completion_tokens) == (Finish, 40)
        assert rig.engine.healthy()

    def test_a_cache_that_cant_be_taken_out_harms_nobody(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: where taking a sequence out raises, its neighbours give the text they give alone; the engine goes on."""
        alone = text_of(rig.answer(max_tokens=40))
        (leaver, leaving), (_, neighbour) = rig.ask(max_tokens=150), rig.ask(max_tokens=40)
        leaving.get(timeout=PATIENCE_S)

        def refusing(*_: Any) -> Any:
            raise RuntimeError("no room for the copy")

        monkeypatch.setattr(rig.engine._batch._generator, "extract_cache", refusing)
        rig.engine.abort(leaver)
        assert text_of(whole(neighbour)) == alone
        assert text_of(rig.answer(max_tokens=40)) == alone
        assert rig.engine.healthy()

    def test_a_step_that_raises_ends_only_what_runs(self, rig: Rig) -> None:
        """Law: where steps go on raising, what runs fails with its usage; what comes later gets the right text."""
        alone = text_of(rig.answer())
        rig.model.moving.clear()
        outs = [rig.ask()[1] for _ in range(2)]
        rig.model.broken = True
        rig.model.moving.set()
        failures = [failed(whole(out)) for out in outs]
        rig.model.broken = False
        assert all(last.fault is Fault.SERVER_ERROR and last.usage is not None for last in failures)
        assert text_of(rig.answer()) == alone
        assert rig.engine.healthy()

    def test_failing_step_after_step_is_unhealthy(self, rig: Rig) -> None:
        """Law: an engine whose steps fail one after the other asks to be replaced."""
        rig.model.broken = True
        for _ in range(3):
            assert fault_of(rig.answer()) is Fault.SERVER_ERROR
        assert not rig.engine.healthy()

    def test_standing_still_is_unhealthy(self, folder: Path) -> None:
        """Law: work and no step for `hang_s` is unhealthy; being idle is not."""
        rig = Rig(folder, hang_s=0.0)
        assert rig.engine.healthy()
        rig.model.moving.clear()
        rig.model.reached.clear()
        _, out = rig.ask()
        assert rig.model.reached.wait(PATIENCE_S)
        assert not rig.engine.healthy()
        rig.model.moving.set()
        whole(out)
        rig.engine.close()

    def test_closing_tells_everybody(self, folder: Path) -> None:
        """Law: on close, running and waiting requests end with `unavailable`; closing twice is fine."""
        rig = Rig(folder)
        rig.model.moving.clear()
        outs = [rig.ask(max_tokens=200)[1] for _ in range(4)]
        closing = threading.Thread(target=rig.engine.close)
        closing.start()
        rig.model.moving.set()
        assert [fault_of(whole(out)) for out in outs] == [Fault.UNAVAILABLE] * 4
        closing.join(PATIENCE_S)
        rig.engine.close()


def unloadable(loading: Callable[[Say], Loaded]) -> Any:
    engine = Engine("t", loading, running_max=1)
    assert engine.load_attempted.wait(PATIENCE_S)
    phase = engine.phase
    assert engine.healthy(), "what is missing is no reason to restart"
    engine.close()
    return phase


class TestLoading:
    def test_a_missing_package_is_named(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: without mlx-lm the engine is unavailable and says what to install."""
        monkeypatch.setitem(sys.modules, "mlx_lm", None)
        phase = unloadable(partial(load_folder, folder))
        assert phase.state is TierState.UNAVAILABLE
        assert "pip install mlx-lm" in phase.reason

    @pytest.mark.parametrize(
        ("file", "content", "reason", "again"),
        [
            ("model-2.safetensors", 1 << 42, "too little memory: the model needs 4096.4 GiB", True),
            ("chat_template.jinja", None, "no chat template", False),
            ("model.safetensors", "not weights", "the model could not be loaded", False),
        ],
    )
    def test_what_cant_be_loaded_is_said(self, folder, tmp_path, file, content, reason, again):
        """Law: a model larger than the memory is not loaded, and the reason has the number; a base model is refused;
        whatever else loading raises, the engine is unavailable. Clients read no path."""
        for one in folder.iterdir():
            os.link(one, tmp_path / one.name)
        (tmp_path / file).unlink(missing_ok=True)
        if isinstance(content, str):
            (tmp_path / file).write_text(content)
        elif content:
            with (tmp_path / file).open("wb") as huge:
                huge.truncate(content)  # a sparse file: it takes no space
        phase = unloadable(partial(load_folder, tmp_path))
        assert reason in phase.reason
        assert phase.again is again
        assert str(tmp_path) not in phase.reason

    def test_it_tries_again_where_time_can_help(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: after a reason that may pass, the engine becomes ready by itself."""
        monkeypatch.setattr(engine_module, "_AGAIN_FIRST_S", 0.01)
        tries: queue.SimpleQueue[str] = queue.SimpleQueue()
        good = partial(load_folder, folder)

        def second_time_lucky(say: Say) -> Loaded:
            tries.put("try")
            if tries.qsize() == 1:
                raise ModelUnavailable("the network is down", again=True)
            loaded = good(say)
            tries.put("loaded")
            return loaded

        engine = Engine("t", second_time_lucky, running_max=1)
        out: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        engine.submit(EngineJob(prompt=PROMPT, max_tokens=2, sink=out.put))
        assert isinstance(whole(out)[-1], Finish)
        assert engine.phase.state is TierState.READY
        engine.close()
