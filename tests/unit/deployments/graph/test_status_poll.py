"""The statuses of all tiers, asked for in the background."""

import asyncio
from typing import Any

import pytest

from deployments.graph import status_poll
from deployments.graph.status_poll import TierWatch
from reliability.types import TierState, TierStatus


class Asked:
    """A tier that answers with this status, raises this error, or (None) never answers."""

    def __init__(self, said: TierStatus | Exception | None) -> None:
        self.said = said

    async def status(self) -> TierStatus:
        if self.said is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(self.said, Exception):
            raise self.said
        assert self.said is not None
        return self.said


def ready(context_tokens: int | None) -> TierStatus:
    return TierStatus(name="well", kind="mlx", state=TierState.READY, context_tokens=context_tokens)


def test_a_tier_that_does_not_answer_is_unavailable_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: every tier has a status, in their order: its own, or that no replica answers; with the kind that is
    configured."""
    monkeypatch.setattr(status_poll, "_STATUS_TIMEOUT_S", 0.05)
    monkeypatch.setattr(status_poll, "_START_S", 0.0)
    tiers: dict[str, Any] = {"hung": Asked(None), "broken": Asked(RuntimeError("secret")), "well": Asked(ready(9))}
    watch = TierWatch(tiers, dict.fromkeys(tiers, "mlx"), {})
    hung, broken, well = asyncio.run(watch.ask())

    assert (hung.name, hung.kind, hung.state) == ("hung", "mlx", TierState.UNAVAILABLE)
    assert (hung.reason, broken.reason) == ("no replica answers (TimeoutError)", "no replica answers (RuntimeError)")
    assert well == ready(9)
    assert watch.known == {"hung": hung, "broken": broken, "well": well}


def test_a_replica_that_has_not_answered_yet_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: silence at the start is loading, so that nobody takes a tier that is nearly there for a broken one; an
    error, or silence after an answer, is not."""
    monkeypatch.setattr(status_poll, "_STATUS_TIMEOUT_S", 0.05)
    silent: Any = Asked(None)
    tiers: dict[str, Any] = {"silent": silent, "broken": Asked(RuntimeError())}
    watch = TierWatch(tiers, dict.fromkeys(tiers, "mlx"), {})
    seen = []
    for said in (None, ready(9), None):
        silent.said = said
        seen.append([one.state for one in asyncio.run(watch.ask())])

    assert seen == [
        [TierState.LOADING, TierState.UNAVAILABLE],
        [TierState.READY, TierState.UNAVAILABLE],
        [TierState.UNAVAILABLE, TierState.UNAVAILABLE],
    ]


def test_a_context_that_was_known_stays_known() -> None:
    """Law: the configured length counts until the tier says its own, and that one is kept while the tier is away."""
    tier: Any = Asked(None)
    watch = TierWatch({"well": tier}, {"well": "mlx"}, {"well": 7, "other": None})
    seen = [dict(watch.context_tokens)]
    for said in (ready(None), ready(9), RuntimeError()):
        tier.said = said
        asyncio.run(watch.ask())
        seen.append(dict(watch.context_tokens))

    assert seen == [{"well": 7}, {"well": 7}, {"well": 9}, {"well": 9}]


async def test_a_watch_asks_by_itself_until_it_is_closed() -> None:
    """Law: what is known comes without anybody asking, and closing ends that."""
    watch = TierWatch({"well": Asked(ready(9))}, {"well": "mlx"}, {})
    watch.start()
    task = watch._task
    watch.start()
    assert watch._task is task
    async with asyncio.timeout(5):
        while not watch.known:  # noqa: ASYNC110  # what a watch knows is told to nobody
            await asyncio.sleep(0)
    await watch.close()
    assert task.done()
