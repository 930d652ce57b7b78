"""Pictures, sounds and files: another one is progress, the same one is none."""

from collections.abc import Callable
from typing import Any

import pytest

from reliability.loops import Stage
from tests.support.conversation import Message, ask, said, stages

LAPS = 9
Part = dict[str, Any]
PARTS: dict[str, Callable[[int], Part]] = {
    "picture": lambda n: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{n:0>4000}"}},
    "large picture": lambda n: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{n:0>90000}"}},
    "picture by address": lambda n: {"type": "image_url", "image_url": {"url": f"https://shop.test/shots/{n}.png"}},
    "sound": lambda n: {"type": "input_audio", "input_audio": {"data": f"{n:0>4000}", "format": "wav"}},
    "file": lambda n: {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:x;base64,{n:0>4000}"}},
}
CAPTIONS = ["Screenshot taken.", "Clicked at (5, 6). The page:\n" + "- link: a part of the shop\n" * 99]
SNAP: Message = ask("computer", {"action": "screenshot"})
Lap = Callable[[str, Part], list[Message]]


def _show(*content: Any, role: str = "user") -> Message:
    parts = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    return {"role": role, "content": parts} | ({"tool_call_id": "c1"} if role == "tool" else {})


LAYOUTS: dict[str, Lap] = {
    "in the result": lambda text, part: [SNAP, _show(text, part, role="tool")],
    "before its text": lambda text, part: [SNAP, _show(part, text, role="tool")],
    "behind the result": lambda text, part: [SNAP, _show(text, role="tool"), _show(part)],
    "with words behind it": lambda text, part: [SNAP, _show("ok", role="tool"), _show(text, part)],
    "shown to an agent without tools": lambda text, part: [said("scroll down"), _show(text, part)],
    "alone": lambda _, part: [said("scroll down"), _show(part)],
    "behind a call in the text": lambda text, part: [said("```bash\nscrot a.png\n```"), _show(text, part)],
}


def _play(layout: str, kind: str, text: str, change: Callable[[int], int]) -> list[Stage | None]:
    laps = [LAYOUTS[layout](text, PARTS[kind](change(number))) for number in range(LAPS)]
    return stages([{"role": "user", "content": "Watch the page."}, *[one for lap in laps for one in lap]])


@pytest.mark.parametrize("text", CAPTIONS, ids=["short", "long"])
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_picture_is_progress(layout: str, kind: str, text: str) -> None:
    """Law: the same step, or the same words of the user, with another picture each time is no loop, wherever the
    picture stands; with the same picture, or two in turn, it is one."""
    assert set(_play(layout, kind, text, lambda number: number)) == {None}
    assert {Stage.WARN, Stage.BREAK} <= set(_play(layout, kind, text, lambda _: 0))
    assert Stage.BREAK in _play(layout, kind, text, lambda number: number % 2)


def test_a_picture_of_a_failure_is_no_progress() -> None:
    """Law: a call that fails alike each time is a loop, however the picture beside its error changes."""
    laps = [[SNAP, _show("Error: no such window", PARTS["picture"](n), role="tool")] for n in range(LAPS)]
    assert Stage.BREAK in stages([_show("Watch the page."), *[one for lap in laps for one in lap]])


def test_a_mark_for_the_cache_makes_no_other_picture() -> None:
    """Law: what a client notes beside a picture for a provider's prompt cache is none of it."""
    mark = {"cache_control": {"type": "ephemeral"}}
    laps = [[SNAP, _show("Taken.", PARTS["picture"](0) | (mark if n % 2 else {}), role="tool")] for n in range(LAPS)]
    assert Stage.BREAK in stages([_show("Watch the page."), *[one for lap in laps for one in lap]])
