"""What waits for the state actor: in order, bounded, and what is missed least gives way."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deployments.state.idempotent_answers import KeptItem
from deployments.state.link import WaitingItems
from deployments.state.records import AnswerItem, IncidentItem, Item, ReportItem, SettlementItem, TurnItem
from reliability.admission.events import Charge, Settlement
from reliability.loops import Turn
from reliability.types import Verdict

BARE: dict[str, Any] = {"key": "k", "session": "s"}


def make_item(kind: type, number: int) -> Item:
    """Make an item of this kind; of two no one is the other."""
    if kind is SettlementItem:
        return SettlementItem(settlement=Settlement(f"g{number}", Verdict.SUCCESS, None), key="k")
    if kind is Charge:
        return Charge("k", "s", number)
    if kind is TurnItem:
        return TurnItem(**BARE, turn=Turn(text=str(number)), request="r")
    if kind is ReportItem:
        return ReportItem(**BARE, report={"n": number}, incidents=())
    return object.__new__(kind)  # what is in it doesn't matter here


KINDS = [KeptItem, ReportItem, TurnItem, AnswerItem, SettlementItem, Charge, IncidentItem]
ORDER = [(KeptItem,), (ReportItem, TurnItem, AnswerItem), (SettlementItem,), (Charge, IncidentItem)]


def drop_by_search(items: list[Item]) -> Item:
    """The rule, said plainly."""
    for kinds in ORDER:
        for item in items:
            if isinstance(item, kinds):
                return items.pop(next(at for at, one in enumerate(items) if one is item))
    raise AssertionError("nothing waits")


@given(
    st.integers(0, 6),
    st.lists(st.one_of(st.sampled_from(KINDS), st.integers(0, 8))),
)
def test_it_is_a_list_that_drops_what_is_missed_least(most, moves):
    """Whatever is put and taken: what comes out, and what gives way, is what a search through a list would find."""
    waiting, plain = WaitingItems(most), []
    for number, move in enumerate(moves):
        if isinstance(move, int):
            taken, plain = plain[:move], plain[move:]
            assert all(one is other for one, other in zip(waiting.take(move), taken, strict=True))
        else:
            item = make_item(move, number)
            plain.append(item)
            lost = drop_by_search(plain) if len(plain) > most else None
            assert waiting.put(item) is lost
        assert len(waiting) == len(plain)
