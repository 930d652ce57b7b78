"""The engine thread, on a real model of a few kilobytes: every request ends, whatever the model does."""

from __future__ import annotations

import dataclasses
import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers import engine as engine_module
from deployments.tiers.answer import AnswerReader
from deployments.tiers.artifacts import ModelUnavailable, parse_source
from deployments.tiers.batch import Job, Pace
from deployments.tiers.engine import Engine
from deployments.tiers.loading import Loaded, load
from deployments.tiers.room import Layout
from deployments.tiers.sampling import Sampling
from deployments.tiers.store import Say
from reliability.types import Event, Failed, Fault, Finish, FinishReason, Reasoning, Text, TierState
from tests.tiers import tiny_model as tiny

PATIENCE_S = 60.0
PROMPT = list(range(40, 90))


class Moody:
    """The real model, which raises or stands still when told to. `breaks_in` raises in that call from now."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.broken = False
        self.breaks_in = 0
        self.moving, self.reached = threading.Event(), threading.Event()
        self.moving.set()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        self.reached.set()
        assert self.moving.wait(PATIENCE_S)
        out = self._model(*inputs, **options)  # it has written to the caches before it raises
        breaks = self.broken or self.breaks_in == 1
        self.breaks_in = max(0, self.breaks_in - 1)
        if breaks:
            raise RuntimeError("the model is in a bad mood")
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class FineLayout(Layout):
    """As a model whose caches grow by a token at a time."""

    def row_bytes(self, tokens: int) -> int:
        return sum(layer.token_bytes * tokens for layer in self.layers)


class Rig:
    """An engine with a moody model."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model: Any = None
        self._folder = folder
        self.engine = Engine("t", self._load, **{"running_max": 2, **options})
        assert self.engine.settled.wait(PATIENCE_S)
        assert self.engine.phase.state is TierState.READY, self.engine.phase

    def _load(self, say: Say) -> Loaded:
        loaded = load(parse_source(f"path:{self._folder}"), cache_dir=None, context_tokens=None, say=say)
        self.model = Moody(loaded.model)
        return dataclasses.replace(loaded, model=self.model)

    def ask(self, **fields: Any) -> tuple[int, queue.SimpleQueue[list[Event]]]:
        out: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        usual: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 20, "sampling": Sampling()}
        fields = {**usual, "reader": AnswerReader(), **fields}
        return self.engine.submit(Job(sink=out.put, **fields)), out

    def answer(self, **fields: Any) -> list[Event]:
        return whole(self.ask(**fields)[1])


def whole(out: queue.SimpleQueue[list[Event]]) -> list[Event]:
    """The events up to the last one."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], Finish | Failed):
        events += out.get(timeout=PATIENCE_S)
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def fault_of(events: list[Event]) -> Fault:
    last = events[-1]
    assert isinstance(last, Failed), last
    return last.fault


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("engine") / "tiny")


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    made = Rig(folder)
    yield made
    made.model.moving.set()
    made.engine.close()


class TestPace:
    @given(st.lists(st.tuples(st.integers(1, 512), st.floats(1e-6, 10)), max_size=20))
    def test_it_stays_within_its_bounds(self, seen: list[tuple[int, float]]) -> None:
        """Law: whatever is measured, the step is within bounds, grows at most fourfold and shrinks at most
        to half."""
        pace = Pace()
        for tokens, seconds in seen:
            before = pace.tokens
            pace.saw(tokens, seconds)
            assert pace.tokens_min <= pace.tokens <= min(pace.tokens_max, 4 * before)
            assert pace.tokens >= before // 2

    @given(st.floats(20, 900))
    def test_it_finds_the_step_of_half_a_second(self, tokens_per_s: float) -> None:
        """Law: at a steady speed the step settles at what half a second prefills."""
        pace = Pace()
        for _ in range(10):
            pace.saw(pace.tokens, pace.tokens / tokens_per_s)
        assert pace.tokens == pytest.approx(tokens_per_s / 2, abs=1) or pace.tokens in (32, 512)


class TestRequests:
    def test_max_tokens_is_exact(self, rig: Rig) -> None:
        """Law: the answer ends at its limit with `length`, and usage counts every token."""
        last = rig.answer(max_tokens=7)[-1]
        assert isinstance(last, Finish)
        assert last.usage is not None
        assert (last.reason, last.usage.completion_tokens) == (FinishReason.LENGTH, 7)
        assert last.usage.prompt_tokens == len(PROMPT)

    def test_more_than_fit_wait_their_turn(self, rig: Rig) -> None:
        """Law: with two places five requests all finish, with the text that each has alone."""
        alone = text_of(rig.answer())
        outs = [rig.ask()[1] for _ in range(5)]
        assert [text_of(whole(out)) for out in outs] == [alone] * 5

    def test_a_seed_draws_the_same_whoever_is_there(self, rig: Rig) -> None:
        """Law: with a seed the sampled text is the same alone and beside others; another seed gives another."""
        warm = Sampling(temperature=1.5, top_p=0.95, seed=3)
        alone = text_of(rig.answer(sampling=warm))
        (_, beside), (_, other) = rig.ask(sampling=warm), rig.ask(sampling=dataclasses.replace(warm, seed=4))
        assert text_of(whole(beside)) == alone
        assert text_of(whole(other)) != alone

    @pytest.mark.parametrize(
        "sampling",
        [
            Sampling(temperature=0.7),
            Sampling(temperature=2.0, top_k=5, min_p=0.1),
            Sampling(temperature=1.0, top_p=1e-6, seed=-1),
            Sampling(temperature=1.0, top_k=10**9, min_p=5.0, seed=2**70),
        ],
    )
    def test_every_setting_generates(self, rig: Rig, sampling: Sampling) -> None:
        """Law: no value of a setting breaks a step."""
        assert isinstance(rig.answer(sampling=sampling)[-1], Finish)

    def test_a_deadline_ends_running_and_waiting(self, rig: Rig) -> None:
        """Law: a request whose time is over is told so, whether it runs (its usage is told) or waits (it
        has none)."""
        rig.model.moving.clear()
        deadline_s = time.monotonic() + 0.1
        outs = [rig.ask(deadline_s=deadline_s, max_tokens=200)[1] for _ in range(4)]
        assert rig.model.reached.wait(PATIENCE_S)
        while time.monotonic() < deadline_s:
            pass
        rig.model.moving.set()
        lasts = [last for out in outs if isinstance(last := whole(out)[-1], Failed)]
        assert [last.fault for last in lasts] == [Fault.TOTAL_TIMEOUT] * 4
        assert [last.usage is not None for last in lasts] == [True, True, False, False]

    def test_a_job_that_cant_run_fails_alone(self, rig: Rig) -> None:
        """Law: a request that the generator refuses fails, and its neighbour doesn't notice."""
        alone = text_of(rig.answer())
        (_, neighbour), (_, bad) = rig.ask(), rig.ask(prompt=[])
        assert fault_of(whole(bad)) is Fault.SERVER_ERROR
        assert text_of(whole(neighbour)) == alone


class TestProcessors:
    def test_a_bias_decides(self, rig: Rig) -> None:
        """Law: a token with a bias of 100 is the whole answer, whatever its neighbour asks for."""
        alone = text_of(rig.answer())
        token = tiny.TOKENS.index("!")
        (_, biased), (_, neighbour) = rig.ask(sampling=Sampling(logit_bias=((token, 100.0),))), rig.ask()
        assert set(text_of(whole(biased))) == {"!"}
        assert text_of(whole(neighbour)) == alone

    def test_a_processor_sees_all_tokens_once_more_after_a_failed_step(self, rig: Rig) -> None:
        """Law: a processor is called with the prompt and the whole answer so far, one token longer each time, but for
        a token that it may see again after a step has failed."""
        sizes: list[int] = []

        def watching(tokens: Any, logits: Any) -> Any:
            assert tokens.tolist()[: len(PROMPT)] == PROMPT
            sizes.append(tokens.size)
            rig.model.breaks_in = int(len(sizes) == 10)
            return logits

        assert isinstance(rig.answer(processors=[watching])[-1], Finish)
        steps = {after - before for before, after in itertools.pairwise(sizes)}
        assert sizes[0] == len(PROMPT)
        assert steps <= {1, 0, -1}
        assert max(sizes) >= len(PROMPT) + 19


class TestThinking:
    def test_a_thinking_that_runs_away_is_closed(self, rig: Rig) -> None:
        """Law: at the cap the end of the thinking is written for the model, which answers from there as if it had
        written that itself; usage counts it all, and the neighbour doesn't notice."""
        alone = text_of(rig.answer(max_tokens=40))
        close = [tiny.TOKENS.index(letter) for letter in "</think>"]
        seen: list[list[int]] = []

        def watching(tokens: Any, logits: Any) -> Any:
            seen.append(tokens.tolist())
            return logits

        reader = AnswerReader(think=("<think>", "</think>"), thinking=True)
        fields = {"reader": reader, "reasoning_tokens_max": 5, "think_close": close, "processors": [watching]}
        (_, thinker), (_, neighbour) = rig.ask(max_tokens=30, **fields), rig.ask(max_tokens=40)
        events = whole(thinker)
        last = events[-1]
        assert isinstance(last, Finish)
        assert last.usage is not None
        assert (last.usage.completion_tokens, last.usage.reasoning_tokens) == (30, 5 + len(close))
        assert any(isinstance(event, Reasoning) for event in events)
        closed = next(tokens for tokens in seen if tokens[-len(close) :] == close)
        assert len(closed) == len(PROMPT) + 5 + len(close)
        assert text_of(events) == text_of(rig.answer(prompt=closed, max_tokens=30 - 5 - len(close)))
        assert text_of(whole(neighbour)) == alone

    def test_a_cap_at_the_end_of_the_answer_ends_it(self, rig: Rig) -> None:
        """Law: where no token is left to close the thinking with, the answer ends with `length`, to the token."""
        close = [tiny.TOKENS.index(letter) for letter in "</think>"]
        reader = AnswerReader(think=("<think>", "</think>"), thinking=True)
        last = rig.answer(max_tokens=9, reader=reader, reasoning_tokens_max=5, think_close=close)[-1]
        assert isinstance(last, Finish)
        assert last.usage is not None
        assert (last.reason, last.usage.completion_tokens) == (FinishReason.LENGTH, 9)


class TestRoom:
    def test_what_doesnt_fit_waits_and_what_never_fits_is_told(self, folder: Path) -> None:
        """Law: requests whose answers don't fit together run one after the other, with the text of each alone; one that
        doesn't fit alone is refused at once."""
        roomy = Rig(folder, running_max=4)
        fill = tiny.CONTEXT - len(PROMPT)
        alone = text_of(roomy.answer(max_tokens=fill))
        room = roomy.engine._batch._room
        roomy.engine.close()
        one_row = room.budget_bytes - room.spare_bytes([tiny.CONTEXT]) + 1000
        tight = Rig(folder, running_max=4, memory_bytes=one_row, ahead_tokens=tiny.CONTEXT)
        running: set[int] = set()

        def counting(tokens: Any, logits: Any) -> Any:
            running.add(len(tight.engine._batch))
            return logits

        outs = [tight.ask(max_tokens=fill, processors=[counting])[1] for _ in range(3)]
        assert [text_of(whole(out)) for out in outs] == [alone] * 3
        assert running == {1}
        assert fault_of(tight.answer(max_tokens=5000)) is Fault.CONTEXT_LENGTH
        tight.engine.close()

    def test_answers_that_grow_too_long_together_are_parked(self, folder: Path) -> None:
        """Law: with memory set aside as answers grow, requests that may write much run together in a budget for one of
        them at its longest; when they do grow, the youngest steps back and goes on later, and the bill is never over
        the budget, nor a text other than it is alone; whoever is parked can leave."""
        roomy = Rig(folder, running_max=4, memory_bytes=1 << 30)
        fill = tiny.CONTEXT - len(PROMPT)
        alone = text_of(roomy.answer(max_tokens=fill))
        room = roomy.engine._batch._room
        roomy.engine.close()
        # Layers grow by 256 tokens at a time, which is this model's whole context: only the scores tell lengths apart.
        room = dataclasses.replace(room, scratch_token_bytes=0)
        layout = FineLayout(room.layout.layers)
        one_row = room.budget_bytes - room.spare_bytes(()) + layout.row_bytes(tiny.CONTEXT)
        tight = Rig(folder, running_max=3, memory_bytes=1 << 30, ahead_tokens=8)
        batch = tight.engine._batch
        batch._room = dataclasses.replace(room, budget_bytes=one_row, layout=layout)
        bills: list[int] = []
        parked: list[int] = []

        def watching(tokens: Any, logits: Any) -> Any:
            bills.append(batch._room.spare_bytes([len(r.job.prompt) + len(r.tokens) for r in batch._running()]))
            parked.append(len(batch._parked))
            return logits

        asked = [tight.ask(max_tokens=fill, processors=[watching]) for _ in range(3)]
        leaver, leaving = asked.pop()
        assert isinstance(leaving.get(timeout=PATIENCE_S)[0], Text)
        while not batch._parked:
            asked[0][1].get(timeout=PATIENCE_S)
        tight.engine.abort(leaver)
        rest = [text_of(whole(out)) for _, out in asked]
        tight.engine.close()

        assert rest[1] == alone
        assert alone.endswith(rest[0])
        assert min(bills) >= 0
        assert max(parked) >= 1


class TestAbort:
    def test_neighbours_keep_their_text_and_the_place_is_free(self, rig: Rig) -> None:
        """Law: after an abort the neighbour's text is what it is alone, and the next one waiting runs."""
        alone = text_of(rig.answer(max_tokens=40))
        (leaver, leaving), (_, neighbour) = rig.ask(max_tokens=150), rig.ask(max_tokens=40)
        _, waiting = rig.ask(max_tokens=5)
        leaving.get(timeout=PATIENCE_S)
        rig.engine.abort(leaver)
        assert isinstance(whole(waiting)[-1], Finish)
        assert text_of(whole(neighbour)) == alone

    def test_one_that_waits_never_runs(self, rig: Rig) -> None:
        """Law: what is aborted before its turn produces nothing, and nobody else is affected."""
        rig.model.moving.clear()
        outs = [rig.ask()[1] for _ in range(2)]
        ticket, never = rig.ask()
        rig.engine.abort(ticket)
        rig.model.moving.set()
        assert all(isinstance(whole(out)[-1], Finish) for out in outs)
        assert isinstance(rig.answer()[-1], Finish)
        assert never.empty()


def raising(after: int) -> Callable[[Any, Any], Any]:
    """A logits processor that raises once it has seen so many tokens of answer."""

    def process(tokens: Any, logits: Any) -> Any:
        if tokens.size >= len(PROMPT) + after:
            raise RuntimeError("no")
        return logits

    return process


def misshapen(tokens: Any, logits: Any) -> Any:
    return logits[:, :1]


class TestFailure:
    @pytest.mark.parametrize("processor", [raising(0), raising(5), misshapen])
    def test_a_processor_that_raises_ends_its_own_sequence_only(self, rig: Rig, processor: Any) -> None:
        """Law: whenever one sequence's processor raises, or gives nonsense, that sequence fails with what it used, and
        its neighbour's text is what it is alone."""
        alone = text_of(rig.answer(max_tokens=40))
        (_, neighbour), (_, culprit) = rig.ask(max_tokens=40), rig.ask(processors=[processor])
        failed = whole(culprit)[-1]
        assert isinstance(failed, Failed)
        assert failed.fault is Fault.SERVER_ERROR
        assert failed.usage is not None
        assert failed.usage.completion_tokens <= 5
        assert text_of(whole(neighbour)) == alone
        assert rig.engine.healthy()

    @pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.2, seed=7, repetition_penalty=1.3)])
    @pytest.mark.parametrize(("after", "call"), [(0, 1), (1, 1), (3, 1), (1, 2), (1, 3), (3, 5)])
    def test_survivors_of_a_failed_step_go_on_as_if_nothing_had_happened(
        self, rig: Rig, sampling: Sampling, after: int, call: int
    ) -> None:
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
        assert isinstance(last, Finish)
        assert last.usage is not None
        assert last.usage.completion_tokens == 40
        assert rig.engine.healthy()

    def test_a_cache_that_cant_be_taken_out_harms_nobody(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: where taking a sequence out of the batch raises, its neighbours give the text they give alone, and the
        engine goes on."""
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
        """Law: where steps go on raising, those that run fail with their usage; those that come later get the right
        text."""
        alone = text_of(rig.answer())
        rig.model.moving.clear()
        outs = [rig.ask()[1] for _ in range(2)]
        rig.model.broken = True
        rig.model.moving.set()
        failures = [whole(out)[-1] for out in outs]
        rig.model.broken = False
        assert all(isinstance(last, Failed) and last.fault is Fault.SERVER_ERROR for last in failures)
        assert all(isinstance(last, Failed) and last.usage is not None for last in failures)
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
    """The phase after an attempt to load that fails."""
    engine = Engine("t", loading, running_max=1)
    assert engine.settled.wait(PATIENCE_S)
    phase = engine.phase
    assert engine.healthy(), "what is missing is no reason to restart"
    engine.close()
    return phase


class TestLoading:
    def load_from(self, folder: Path) -> Callable[[Say], Loaded]:
        return lambda say: load(parse_source(f"path:{folder}"), cache_dir=None, context_tokens=None, say=say)

    def test_a_missing_package_is_named(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: without mlx-lm the engine is unavailable and says what to install."""
        monkeypatch.setitem(sys.modules, "mlx_lm", None)
        phase = unloadable(self.load_from(folder))
        assert phase.state is TierState.UNAVAILABLE
        assert "pip install mlx-lm" in phase.reason

    def test_too_little_memory_is_said_before_loading(self, folder: Path, tmp_path: Path) -> None:
        """Law: a model larger than the memory is not loaded; the reason has both numbers."""
        for file in folder.iterdir():
            os.link(file, tmp_path / file.name)
        with (tmp_path / "model-2.safetensors").open("wb") as huge:
            huge.truncate(1 << 42)  # a sparse file: it takes no space
        phase = unloadable(self.load_from(tmp_path))
        assert "too little memory: the model needs 4096.4 GiB" in phase.reason
        assert phase.again

    def test_a_model_without_a_template_is_refused(self, folder: Path, tmp_path: Path) -> None:
        """Law: a base model is unavailable with that reason."""
        for file in folder.iterdir():
            if file.suffix != ".jinja":
                os.link(file, tmp_path / file.name)
        assert "no chat template" in unloadable(self.load_from(tmp_path)).reason

    def test_a_broken_model_is_unavailable(self, folder: Path, tmp_path: Path) -> None:
        """Law: whatever loading raises, the engine is unavailable; clients read no path."""
        for file in folder.iterdir():
            os.link(file, tmp_path / file.name)
        (tmp_path / "model.safetensors").unlink()
        (tmp_path / "model.safetensors").write_text("not weights")
        phase = unloadable(self.load_from(tmp_path))
        assert phase.reason.startswith("the model could not be loaded")
        assert str(tmp_path) not in phase.reason

    def test_it_tries_again_where_time_can_help(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: after a reason that may pass, the engine becomes ready by itself."""
        monkeypatch.setattr(engine_module, "_AGAIN_FIRST_S", 0.01)
        tries: queue.SimpleQueue[str] = queue.SimpleQueue()
        good = self.load_from(folder)

        def second_time_lucky(say: Say) -> Loaded:
            tries.put("try")
            if tries.qsize() == 1:
                raise ModelUnavailable("the network is down", again=True)
            loaded = good(say)
            tries.put("loaded")
            return loaded

        engine = Engine("t", second_time_lucky, running_max=1)
        out: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        engine.submit(Job(prompt=PROMPT, max_tokens=2, sampling=Sampling(), reader=AnswerReader(), sink=out.put))
        assert isinstance(whole(out)[-1], Finish)
        assert engine.phase.state is TierState.READY
        engine.close()
