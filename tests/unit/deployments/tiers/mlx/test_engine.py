"""The engine thread, on a real model of a few kilobytes: every request ends, whatever the model does."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from deployments.tiers.mlx import engine as engine_module
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.stream_matchers import AnswerReader
from deployments.tiers.thinking import find_opened
from deployments.tiers.thought_watch import ThoughtLimit
from reliability.types import Failed, Fault, Finish, FinishReason, Prefilled, Reasoning, Text
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PATIENCE_S, PROMPT, FineLayout, Rig, fault_of, text_of, whole
from tests.support.tier_asking import usage_of


class TestRequests:
    def test_max_tokens_is_exact(self, rig: Rig) -> None:
        """Law: the answer ends at its limit with `length`, and usage counts every token."""
        last = rig.answer(max_tokens=7)[-1]
        assert (last.reason, last.usage.completion_tokens) == (FinishReason.LENGTH, 7)
        assert last.usage.prompt_tokens == len(PROMPT)

    def test_more_than_fit_wait_their_turn(self, rig: Rig) -> None:
        """Law: with two places five requests all finish, with the text that each has alone."""
        alone = text_of(rig.answer())
        outs = [rig.ask()[1] for _ in range(5)]
        assert [text_of(whole(out)) for out in outs] == [alone] * 5

    def test_who_waits_for_a_place_is_told(self, rig: Rig) -> None:
        """Law: a request that isn't admitted hears how many are before it, once that is due."""
        rig.model.moving.clear()
        outs = [rig.ask(report_s=report_s)[1] for report_s in (float("inf"), float("inf"), 0.0)]
        rig.model.moving.set()
        told = [[one.waits_behind for one in whole(out) if isinstance(one, Prefilled)] for out in outs]
        assert told == [[], [], [2]]

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
        """Law: a request whose time is over is told so, whether it runs (its usage is told) or waits (it has none)."""
        rig.model.moving.clear()
        deadline_s = time.monotonic() + 0.5  # time enough for two of them to begin
        outs = [rig.ask(deadline_s=deadline_s, max_tokens=200)[1] for _ in range(4)]
        assert rig.model.reached.wait(PATIENCE_S)
        while time.monotonic() < deadline_s:
            pass
        rig.model.moving.set()
        lasts = [last for out in outs if isinstance(last := whole(out)[-1], Failed)]
        assert [last.fault for last in lasts] == [Fault.DEADLINE] * 4
        assert [last.usage is not None for last in lasts] == [True, True, False, False]

    def test_a_job_that_cant_run_fails_alone(self, rig: Rig) -> None:
        """Law: a request that the generator refuses fails, and its neighbour doesn't notice."""
        alone = text_of(rig.answer())
        (_, neighbour), (_, bad) = rig.ask(), rig.ask(prompt=[])
        assert fault_of(whole(bad)) is Fault.SERVER_ERROR
        assert text_of(whole(neighbour)) == alone


CLOSE = [tiny.TOKENS.index(letter) for letter in "</think>"]


class TestThinking:
    def test_a_thinking_that_runs_away_is_closed(self, rig: Rig) -> None:
        """Law: at the cap the end of the thinking is written for the model, which answers from there as if it had
        written that itself; usage counts it all, and the neighbour doesn't notice."""
        alone = text_of(rig.answer(max_tokens=40))
        seen: list[list[int]] = []

        def watching(tokens: Any, logits: Any) -> Any:
            seen.append(tokens.tolist())
            return logits

        reader = AnswerReader(inside=find_opened("<think>"))
        fields = {"reader": reader, "thought": ThoughtLimit(5, CLOSE), "processors": [watching]}
        (_, thinker), (_, neighbour) = rig.ask(max_tokens=30, **fields), rig.ask(max_tokens=40)
        events, thought = whole(thinker), 5 + len(CLOSE)
        assert (usage_of(events).completion_tokens, usage_of(events).reasoning_tokens) == (30, thought)
        assert any(isinstance(event, Reasoning) for event in events)
        closed = next(tokens for tokens in seen if tokens[-len(CLOSE) :] == CLOSE)
        assert len(closed) == len(PROMPT) + thought
        assert text_of(events) == text_of(rig.answer(prompt=closed, max_tokens=30 - thought))
        assert text_of(whole(neighbour)) == alone

    def test_a_cap_at_the_end_of_the_answer_ends_it(self, rig: Rig) -> None:
        """Law: where no token is left to close the thinking with, the answer ends with `length`, to the token."""
        reader = AnswerReader(inside=find_opened("<think>"))
        last = rig.answer(max_tokens=9, reader=reader, thought=ThoughtLimit(5, CLOSE))[-1]
        assert (last.reason, last.usage.completion_tokens) == (FinishReason.LENGTH, 9)


class TestRoom:
    def test_what_doesnt_fit_waits_and_what_never_fits_is_told(self, folder: Path) -> None:
        """Law: requests whose answers don't fit together run one after the other, with the text of each alone; one that
        doesn't fit alone is refused at once."""
        roomy = Rig(folder, running_max=4)
        fill = tiny.CONTEXT - len(PROMPT)
        alone = text_of(roomy.answer(max_tokens=fill))
        room = roomy.engine._batch._budget
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
        room = roomy.engine._batch._budget
        roomy.engine.close()
        # Layers grow by 256 tokens at a time, which is this model's whole context: only the scores tell lengths apart.
        room = dataclasses.replace(room, scratch_token_bytes=0)
        layout = FineLayout(room.layout.layers)
        one_row = room.budget_bytes - room.spare_bytes(()) + layout.sequence_bytes(tiny.CONTEXT)
        tight = Rig(folder, running_max=3, memory_bytes=1 << 30, ahead_tokens=8)
        batch = tight.engine._batch
        batch._budget = dataclasses.replace(room, budget_bytes=one_row, layout=layout)
        bills: list[int] = []
        parked: list[int] = []

        def watching(tokens: Any, logits: Any) -> Any:
            bills.append(batch._budget.spare_bytes([len(r.job.prompt) + len(r.tokens) for r in batch._list_running()]))
            parked.append(len(batch._preempted))
            return logits

        asked = [tight.ask(max_tokens=fill, processors=[watching]) for _ in range(3)]
        leaver, leaving = asked.pop()
        assert isinstance(leaving.get(timeout=PATIENCE_S)[0], Text)
        while not batch._preempted:
            asked[0][1].get(timeout=PATIENCE_S)
        tight.engine.abort(leaver)
        rest = [text_of(whole(out)) for _, out in asked]
        tight.engine.close()

        assert rest[1] == alone
        assert alone.endswith(rest[0])
        assert min(bills) >= 0
        assert max(parked) >= 1


class TestGathering:
    def test_an_idle_engine_waits_for_those_that_are_on_their_way(self, rig, monkeypatch):
        """Law: two that come at the same time are prefilled in one go, even where the first is there earlier."""
        monkeypatch.setattr(engine_module, "_GATHER_MAX_S", PATIENCE_S)
        rig.model.shapes.clear()
        with rig.engine.expect_request():
            _, one = rig.ask()
            while not rig.engine._waiting:  # until it waits for the other
                pass
        _, two = rig.ask()
        assert all(isinstance(whole(out)[-1], Finish) for out in (one, two))
        assert rig.model.shapes[0] == (2, len(PROMPT) - 1)

    def test_who_has_little_to_read_waits_little(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: the wait for others is a tenth of what those that have come will take, whatever was read before them,
        and what is kept of a prompt isn't read."""
        gather, idle, gaps = rig.engine._gather, rig.engine._idle, []

        def note(timeout_s: float) -> bool:
            gaps.append(timeout_s)
            return idle(timeout_s)

        def watch(batch: Scheduler) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(rig.engine, "_idle", note)
                gather(batch)

        monkeypatch.setattr(rig.engine, "_gather", watch)
        long = [token for token in PROMPT for _ in range(4)]
        for prompt, left in ((long, len(long)), ([*long, 9, 9], 2)):
            half_a_second = rig.engine._batch.pace.tokens
            rig.answer(prompt=prompt)
            assert gaps == [pytest.approx(min(0.1 * 0.5 * left / half_a_second, 0.06), rel=0.1)]
            gaps.clear()

    def test_it_waits_for_nobody_for_ever(self, rig: Rig) -> None:
        """Law: a request is answered while another is expected that never comes."""
        with rig.engine.expect_request():
            assert isinstance(rig.answer()[-1], Finish)


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
