"""The windows of all sessions: bounded, and no more is sent than is needed."""

from dataclasses import replace

from deployments.state.actor import _Windows
from deployments.state.records import TurnItem
from reliability.loops import LoopConfig, SeenCall, ShownHistory, Turn

CONFIG = LoopConfig()


def item(session: str, number: int, result: str = "ok") -> TurnItem:
    """The answer to a request that shows the one before it."""
    call = (SeenCall("read", "{}"),)
    newest = (Turn(call, (result,)),) if number else ()
    shown = ShownHistory(request=f"r{number}", task="t", newest=newest, spoken=False, complete=1)
    return TurnItem(key="k", session=session, turn=Turn(call, (None,)), shown=shown)


def test_what_was_kept_comes_only_where_it_is_more():
    """A request that shows all of it is sent nothing; one that shows less is sent all of it."""
    windows = _Windows(10)
    for number in range(4):
        windows.take(item("s", number), CONFIG)

    assert len(windows.find("k", "s", complete=3).kept) == 4
    assert windows.find("k", "s", complete=4).kept == ()
    assert windows.find("k", "other").kept == windows.find("l", "s").kept == ()


def test_a_session_that_had_tools_has_them():
    """Law: one request that declares tools tells that the session is an agent's, whatever comes behind it."""
    windows = _Windows(10)
    found = []
    for number, tools in enumerate((False, True, False, False)):
        one = item("s", number)
        assert one.shown is not None
        windows.take(replace(one, shown=replace(one.shown, tools=tools)), CONFIG)
        found.append(windows.find("k", "s").tools)
    assert found == [False, True, True, True]
    assert not windows.find("k", "other").tools


def test_windows_are_bounded_in_number_and_in_characters():
    """The least recently used goes first, and what goes is no longer counted."""
    windows = _Windows(3, chars_max=10_000)
    for number in range(6):
        windows.take(item(f"s{number}", 1), CONFIG)
    assert [bool(windows.find("k", f"s{number}").kept) for number in range(6)] == [False] * 3 + [True] * 3
    for number in range(40):
        windows.take(item(f"s{number % 3}", number, "x" * 1_500), CONFIG)
        assert windows._shares.held.total() <= 10_000
    for number in range(6):
        windows.forget("k", f"s{number}")
    assert (len(windows._windows), windows._shares.held.total()) == (0, 0)


def test_a_detector_that_is_off_keeps_nothing():
    """Without loop detection nothing is kept of what was answered."""
    windows = _Windows(3)
    windows.take(item("s", 1), LoopConfig(enabled=False))

    assert windows.find("k", "s").kept == ()
