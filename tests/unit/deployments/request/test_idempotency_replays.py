"""A repeated request is told the same answer, in every dialect: over the state actor itself, in virtual time.

    one Router ──▶ state actor ◀── another Router            a tier that writes a word each `WORD_S`

A Router that is killed speaks no more: its link ends, and what it ran stops.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.errors import ApiError
from deployments.reports.report import report_of
from deployments.request.idempotency import _read_name, find_kept
from tests.support.kept_world import TEXT, WORD_S, Told, each_dialect, each_way, in_world
from tests.support.run_values import request_of, run_of
from tests.support.staging import staged

in_a_world = staged(in_world, "tmp_path", parts=1)


@each_dialect
@each_way
@in_a_world
async def test_a_finished_answer_is_told_again(world, path, stream):
    """Law: by any Router, from its start, with the same calls, a header and a note; no tier is asked and nothing is
    charged."""
    first = await world.one.answer(Told(), path, stream=stream)
    await asyncio.sleep(2)
    spent = world.spent(first)
    again = await world.other.answer(Told(), path, stream=stream)
    await asyncio.sleep(2)

    assert (first.text, again.text) == (TEXT, TEXT)
    assert first.calls == again.calls
    assert first.calls
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    assert again.headers["x-mlx-stack-session"] == first.headers["x-mlx-stack-session"]
    assert again.headers["x-mlx-stack-tier"] == "fast"
    assert "told again" in report_of(again.run)["notes"][0]
    assert len(world.tier.asked) == 1
    assert world.spent(first) == world.spent(again) == spent > 0


@each_dialect
@each_way
@in_a_world
async def test_a_running_answer_is_followed(world, path, stream):
    """Law: a repeat is told what there is, then the rest as it comes; one call to the tier, charged once."""
    first = world.begin(world.one, path=path, stream=stream)
    await asyncio.sleep(5 * WORD_S)
    again = world.begin(world.other, path=path, stream=stream)
    await asyncio.sleep(5 * WORD_S)
    if stream:
        assert again.text.startswith("w0 w1 ")
        assert len(again.text) < len(TEXT)
    await asyncio.gather(*world.tasks)

    assert (first.text, again.text) == (TEXT, TEXT)
    assert first.calls == again.calls
    assert again.headers["idempotent-replayed"] == "true"
    assert len(world.tier.asked) == 1


@each_dialect
@pytest.mark.parametrize("killed", [True, False])
@in_a_world
async def test_a_stream_that_had_stopped_goes_on(world, path, killed):
    """Law: whether its Router died or its client left, the repeat is told the whole answer from its start, to the
    letter; the tier writes only the rest, and that is what is charged beside what had left before."""
    world.begin(world.one, path=path)
    await asyncio.sleep(12 * WORD_S)
    if killed:
        await world.one.kill()
    world.tasks[0].cancel()
    await asyncio.sleep(1)
    again = await world.other.answer(Told(), path)
    begun = world.tier.asked[1].begun

    assert again.text == TEXT
    assert again.calls
    assert begun
    assert TEXT.startswith(begun)
    assert 5 < len(begun.split()) <= 12
    assert report_of(again.run)["continued"]
    assert [a["seam"] for a in report_of(again.run)["attempts"]] == [None, len(begun)]
    assert again.run.request.max_tokens < 500
    third = await world.other.answer(Told(), path)
    assert (third.text, third.calls, len(world.tier.asked)) == (TEXT, again.calls, 2)


@pytest.mark.parametrize("router_dies", [True, False])
@in_a_world
async def test_a_follower_goes_on_where_the_other_stopped(world, router_dies):
    """Law: who follows an answer when its Router dies gets the rest in the same stream, without a word twice. Where the
    state is away, who has been told words is told the rest of them, by an attempt of its own."""
    world.begin(world.one)
    await asyncio.sleep(5 * WORD_S)
    again = world.begin(world.other)
    await asyncio.sleep(5 * WORD_S)
    await (world.one if router_dies else world.other).kill()
    if router_dies:
        world.tasks[0].cancel()
    await world.tasks[1]

    assert again.text == TEXT
    assert not router_dies or len(world.tier.asked) == 2
    assert not router_dies or ": continued by tier fast at character" in again.raw


@pytest.mark.parametrize("asked", [{"stream": False}, {"limits": {"continuations_max": 0}}], ids=["whole", "no seams"])
@in_a_world
async def test_what_is_not_gone_on_with_runs_anew(world, asked):
    """Law: of a whole answer nothing had left, and `continuations_max: 0` holds for repeats, too; the repeat is
    answered all the same."""
    world.begin(world.one, **asked)
    await asyncio.sleep(12 * WORD_S)
    world.tasks[0].cancel()
    await asyncio.sleep(1)
    again = await world.other.answer(Told(), **asked)
    assert (again.text, world.tier.asked[1].begun) == (TEXT, "")


@each_dialect
@each_way
@in_a_world
async def test_a_failed_answer_is_not_kept(world, path, stream):
    """Law: the repeat of a request that ended in an error runs anew."""
    world.tier.fails = True
    first = await world.one.answer(Told(), path, stream=stream)
    await asyncio.sleep(1)
    world.tier.fails = False
    again = await world.other.answer(Told(), path, stream=stream)
    assert (first.status >= 500, again.text) == (True, TEXT)
    assert "idempotent-replayed" not in again.headers


@each_dialect
@in_a_world
async def test_another_body_is_a_422(world, path):
    """Law: a name that was another body's is refused in words that name the header, and nothing runs."""
    await world.one.answer(Told(), path)
    other = await world.other.answer(Told(), path, temperature=0.5)
    assert other.status == 422
    assert "Idempotency-Key" in other.raw
    assert len(world.tier.asked) == 1


@each_way
@in_a_world
async def test_the_second_try_of_an_sdk(world, stream):
    """Law: count 0 always runs anew; a later one takes over what a dead Router ran, and never what a client still
    reads; an answer that has left is let go."""

    def tries(count: int) -> dict[str, str]:
        return {"x-stainless-retry-count": str(count)}

    world.begin(world.one, stream=stream, headers=tries(0))
    await asyncio.sleep(12 * WORD_S)
    beside = await world.other.answer(Told(), stream=stream, headers=tries(1))
    assert (beside.text, world.tier.asked[1].begun) == (TEXT, "")  # the first one's client was still there
    await world.tasks[0]
    await asyncio.sleep(2)
    assert world.near.actor.stats()["kept_answers"] == 0

    world.begin(world.one, stream=stream, headers=tries(0))
    await asyncio.sleep(12 * WORD_S)
    await world.one.kill()
    world.tasks[1].cancel()
    again = await world.other.answer(Told(), stream=stream, headers=tries(1))
    assert again.text == TEXT
    assert bool(world.tier.asked[3].begun) is stream


@in_a_world
async def test_a_silent_state_costs_no_answer(world):
    """Law: where the state can't be asked, a named request runs as one without a name."""
    await world.one.kill()
    assert (await world.one.answer(Told())).text == TEXT


@in_a_world
async def test_a_request_without_a_name_tells_the_state_nothing(world):
    """Law: neither header, no record."""
    told = await world.one.answer(Told(), headers={})
    assert told.text == TEXT
    assert world.near.actor.stats()["kept_answers"] == 0


@in_a_world
async def test_the_end_goes_with_what_it_cost(world):
    """Law: no step brings the settlement of an answer without its end, so a Router that dies is paid and told, or
    neither."""
    steps: list[Any] = []
    call = world.one.near.call

    async def hear(method: str, *args: Any) -> Any:
        if method == "step":
            steps.append([type(one).__name__ for one in args[0].items])
        return await call(method, *args)

    world.one.near.call = hear  # type: ignore[method-assign]
    await world.one.answer(Told())
    await asyncio.sleep(2)
    assert [("KeptItem" in step) for step in steps if "SettlementItem" in step] == [True]


@given(st.text(max_size=300) | st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=300))
@example("")
@example("x" * 255)
@example("x" * 256)
def test_a_name_is_visible_ascii_of_some_length(name):
    """Law: it is taken as it is; anything else is refused by the header's name: a client that repeats under a name that
    the server passed over would be charged twice and not know it."""
    if 0 < len(name) <= 255 and all(0x21 <= ord(char) <= 0x7E for char in name):
        assert _read_name({"idempotency-key": name}) == (name, None)
        return
    with pytest.raises(ApiError, match="Idempotency-Key") as refused:
        _read_name({"idempotency-key": name})
    assert (refused.value.code, refused.value.param) == ("invalid_request", "Idempotency-Key")


@pytest.mark.parametrize(
    ("count", "found"), [("0", ("", 0)), ("2", ("", 2)), ("", None), ("-1", None), ("1" * 9, None)]
)
def test_a_try_is_a_small_number(count, found):
    """Law: what is no count is no header of an SDK's, and the request runs as one without; a name goes before it."""
    assert _read_name({"x-stainless-retry-count": count}) == found
    assert _read_name({"idempotency-key": "n", "x-stainless-retry-count": count}) == ("n", None)


@pytest.mark.parametrize("route", ["completions", "embeddings"])
def test_what_is_passed_on_is_not_kept(route):
    """Law: its pieces are another API's bytes; nobody is asked."""
    run, nobody = run_of(request_of("hi")), None
    assert asyncio.run(find_kept(nobody, route, {"idempotency-key": "n"}, b"", run)) is None  # type: ignore[arg-type]


def test_logprobs_are_not_kept_and_the_report_says_so():
    """Law: nothing that a client asks for has no effect without a word."""
    nobody: Any = None
    run = run_of(replace(request_of("hi"), top_logprobs=1))

    assert asyncio.run(find_kept(nobody, "chat", {"idempotency-key": "n"}, b"", run)) is None
    assert "logprobs" in run.notes[0]
