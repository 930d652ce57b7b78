"""Images and files that no tier can read are left out of the past, and only there."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.request.run_record import Run
from deployments.tiers.prompt import RequestRefused, tidy_messages
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.context_edits import MEDIA_STUB
from reliability.types import ChatRequest, RefuseCode
from tests.support.conversation import Message, ask, said, told
from tests.support.driving import ANSWERS, drive_once, text_of

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}
TEXT = {"type": "text", "text": "Look at this."}


class _Reading(ScriptedTier):
    """A tier that reads a prompt as an `mlx` tier does; `sees`: images and files, too."""

    def __init__(self, name: str, *, sees: bool) -> None:
        super().__init__(name=name, script=[])
        self.sees, self.teller = sees, ScriptedTier(name=name, script=[{"answer": ANSWERS["good"][0]}])

    async def stream(self, request: ChatRequest) -> Any:
        try:
            if not self.sees:
                tidy_messages(request.messages)
        except RequestRefused as refusal:
            yield [refusal.failed]
            return
        async for events in self.teller.stream(request):
            yield events


def drive_history(history: list[Message], *sees: bool) -> tuple[Run, str]:
    def change(run: Run) -> None:
        run.request = replace(run.request, messages=tuple(history))

    names = ("fast", "premium")[: len(sees)]
    run, events = drive_once({name: _Reading(name, sees=eyes) for name, eyes in zip(names, sees, strict=True)}, change)
    return run, text_of(events)


def user(*parts: Any) -> Message:
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize("media", [PNG, PDF])
@pytest.mark.parametrize(
    "build",
    [
        lambda media: [user(TEXT), ask("f"), told("Took it."), user(media)],
        lambda media: [user(TEXT), ask("f"), {**told(""), "content": [TEXT, media]}],
        lambda media: [user(TEXT), ask("f"), told("Took it."), {"role": "system", "content": "Go on."}, user(media)],
        lambda media: [user(TEXT, media), said("I can't."), user(TEXT)],
        lambda media: [user(TEXT), ask("f"), told("x"), user(media, TEXT), said("Hm."), user(TEXT)],
    ],
)
def test_what_a_tool_or_an_older_turn_shows_ends_no_session(media: Message, build: Any) -> None:
    """A tier that sees answers with all of it; where none does, one answers without, and the report says so."""
    history = build(media)
    run, text = drive_history(history, False, True)
    assert (text, run.request.messages) == ("good from premium", tuple(history))
    run, text = drive_history(history, False, False)
    assert text == "good from fast"
    assert MEDIA_STUB in [part for m in run.request.messages if isinstance(m["content"], list) for part in m["content"]]
    assert "1 images or files" in run.notes[-1]


def test_who_asks_about_an_image_hears_that_no_tier_can_see_it() -> None:
    """The newest words of a user are never changed; older media may go, and don't help."""
    for newest in ([user(TEXT, PNG)], [user(PNG), user(TEXT)], [user(PNG), {"role": "system", "content": "Be short."}]):
        for past in ([], [user(PNG), said("Hm.")]):
            run, text = drive_history([*past, *newest], False)
            assert run.refusal is not None
            assert (text, run.refusal.code) == ("", RefuseCode.UNSUPPORTED)
            assert list(run.request.messages[-len(newest) :]) == newest
