"""Where a judgement is made: here, elsewhere, or by one who can't judge; but always."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from deployments.work.judging import STEPS_INLINE, STEPS_LARGE, Elsewhere, make_judgement
from deployments.work.worker_pool import JobTooLong, Undone
from reliability.steps import OutOfSteps, Steps


def question(size: int, *, steps: Steps | None = None) -> Any:
    """Costs so many steps; who must answer in the end and can't, refuses."""
    try:
        if steps is not None:
            steps.spend(size)
    except OutOfSteps:
        if steps is not None and steps.final:
            return "refused"
        raise
    return "judged"


def judged(size: int, elsewhere: Elsewhere | None, left_s: float = 5.0) -> tuple[Any, list[str]]:
    places: list[str] = []

    async def here(work: Callable[[], Any]) -> Any:
        places.append("here")
        return work()

    async def there(*args: Any, **named: Any) -> Any:
        places.append("there")
        assert elsewhere is not None
        return await elsewhere(*args, **named)

    def asked(**named: Any) -> Any:
        return question(size, **named)

    return asyncio.run(make_judgement(asked, here, there if elsewhere else None, left_s)), places


async def work(asked: Callable[..., Any], **named: Any) -> Any:
    return asked(**named)


async def hang(*_: Any, **__: Any) -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("size", "answer", "places"),
    [
        (STEPS_INLINE, "judged", ["here"]),
        (STEPS_INLINE + 1, "judged", ["here", "there"]),
        (STEPS_LARGE, "judged", ["here", "there"]),
        (STEPS_LARGE + 1, "refused", ["here", "there"]),
    ],
)
def test_what_is_large_is_judged_elsewhere(size: int, answer: str, places: list[str]) -> None:
    """Law: what is small never leaves the loop; what is too large for a worker as well is answered by a refusal."""
    assert judged(size, work) == (answer, places)


@pytest.mark.parametrize("error", [Undone("no worker"), JobTooLong("9 s")])
def test_where_no_worker_can_it_is_refused(error: Exception) -> None:
    """Law: a call that nobody could judge is not taken for a good one."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise error

    assert judged(STEPS_INLINE + 1, broken)[0] == "refused"


@pytest.mark.parametrize("left_s", [-1.0, 0.0, 0.01])
def test_no_question_is_without_an_end(left_s: float) -> None:
    """Law: a worker that doesn't answer is waited for as long as there is time, and no longer."""
    assert judged(STEPS_INLINE + 1, hang, left_s)[0] == "refused"


def test_without_workers_it_takes_what_it_takes() -> None:
    """Law: where there is no elsewhere, every question is judged here."""
    assert judged(STEPS_LARGE + 1, None) == ("judged", ["here"])
