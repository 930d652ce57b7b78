"""Judge a call on the event loop, or in a worker if it takes too many steps.

An ordinary call takes 10 to 100 steps; one that has used up `STEPS_INLINE` costs the loop about 25 ms and is judged
from the beginning by a worker. Invariants: a call that was not judged is never delivered; every question ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from deployments.work.worker_pool import Undone
from reliability.answer.judgement import Judged
from reliability.steps import OutOfSteps, Steps

STEPS_INLINE = 20_000
STEPS_LARGE = 20_000_000  # more than a worker's seconds are worth: those decide

Question = Callable[..., Judged]
Here = Callable[[Callable[[], Judged]], Awaitable[Judged]]
Elsewhere = Callable[..., Awaitable[Any]]


async def make_judgement(question: Question, here: Here, elsewhere: Elsewhere | None, left_s: float) -> Judged:
    """Make the judgement, within `left_s` seconds where it is made elsewhere. Without `elsewhere`
    it is made `here`, in as many steps as it takes."""
    if elsewhere is None:
        return await here(question)
    try:
        return await here(partial(question, steps=Steps(STEPS_INLINE)))
    except OutOfSteps:
        pass
    try:
        async with asyncio.timeout(max(0.0, left_s)):
            return await elsewhere(question, steps=Steps(STEPS_LARGE, final=True))  # type: ignore[no-any-return]
    except (Undone, TimeoutError):
        return question(steps=Steps(0, final=True))
