"""What is left out where no tier can hold a prompt or read its media: old results of tools, past images and files."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from deployments.reports.report import report_headers, report_of
from deployments.request.run_record import Run
from deployments.tiers.prompt import RequestRefused, tidy_messages
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.answer.estimate import prompt_bytes
from reliability.context_edits import MEDIA_STUB, STUB
from reliability.types import ChatRequest, Fault, RefuseCode
from tests.support.conversation import Message, ask, said, told
from tests.support.driving import ANSWERS, TOOLS, drive_once, scripted, text_of

GOOD = [{"answer": "good"}]


def grow(turns: int, size: int = 1000) -> tuple[dict[str, Any], ...]:
    """A conversation of so many turns, each with a result of so many bytes."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all of it."}]
    for at in range(turns):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": f'{{"a": {at}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": "y" * size})
    return tuple(messages)


def shorten(messages: tuple[dict[str, Any], ...], *, contexts: dict[str, int], policy: bool = True) -> Run:
    """Ask tiers with these contexts, in tokens."""

    def change(run: Run) -> None:
        run.limits = replace(run.limits, shorten=policy)
        run.request = replace(run.request, messages=messages, max_tokens=100)
        run.prompt_bytes = prompt_bytes(messages, TOOLS)

    return drive_once(scripted({"fast": GOOD, "standard": GOOD}), change, context_tokens=contexts)[0]


def stubs(run: Run) -> int:
    return sum(message["content"] == STUB for message in run.request.messages)


def test_without_the_policy_it_is_refused():
    """As ever: by the context that was too small."""
    run = shorten(grow(20), contexts={"fast": 1000, "standard": 2000}, policy=False)

    assert run.refusal.code is RefuseCode.CONTEXT_LENGTH
    assert (run.shortened, report_of(run)["shortened"], stubs(run)) == (0, 0, 0)


def test_with_it_a_tier_answers_and_the_answer_says_so():
    """The oldest results are left out, the newest and all words of the user stay; the report, its notes and a header
    name the number; that no tier could hold the whole stands in the attempts."""
    run = shorten(grow(20), contexts={"fast": 1000, "standard": 2000})
    report = report_of(run)

    assert run.finish is not None
    assert run.refusal is None
    assert 0 < stubs(run) == run.shortened == report["shortened"] < 20
    assert report_headers(run)["X-MLX-Stack-Shortened"] == str(run.shortened)
    assert any("left out" in note for note in report["notes"])
    assert [attempt.fault for attempt in run.attempts][:2] == [Fault.CONTEXT_LENGTH] * 2
    assert run.request.messages[0] == grow(20)[0]
    assert run.request.messages[-1] == grow(20)[-1]


def test_a_prompt_that_fits_some_tier_is_left_whole():
    """A larger context further up the chain goes before a shorter prompt."""
    run = shorten(grow(20), contexts={"fast": 1000, "standard": 100_000})

    assert (run.tier, run.shortened, stubs(run)) == ("standard", 0, 0)


def test_what_cant_be_shortened_is_refused():
    """The user's own words are over the context: nothing of them is left out, and the refusal is as ever."""
    messages = ({"role": "user", "content": "y" * 50_000}, *grow(2)[1:])
    run = shorten(messages, contexts={"fast": 1000, "standard": 2000})

    assert run.refusal.code is RefuseCode.CONTEXT_LENGTH
    assert run.request.messages[0] == messages[0]


@pytest.mark.parametrize(("size", "unread"), [(5000, 0), (9000, 2)])
def test_what_several_calls_have_brought_is_read(size, unread):
    """Results that no answer stands behind are left out only where the prompt would fit no tier with them."""
    *history, call, result = grow(5, 2000)
    calls = [{**call["tool_calls"][0], "id": f"n{at}"} for at in range(3)]
    newest = [{**result, "tool_call_id": f"n{at}", "content": "z" * size} for at in range(3)]
    run = shorten((*history, {**call, "tool_calls": calls}, *newest), contexts={"fast": 4000, "standard": 4000})

    assert run.finish is not None
    assert run.shortened == stubs(run) == 4 + unread


@pytest.mark.parametrize("size", [300, 900, 2000])
def test_the_prefix_holds_from_turn_to_turn(size):
    """While a session grows by a turn at a time, the next prompt begins with the whole of the last one but where a step
    was taken, and a step makes room for more than one turn."""
    prompts = [
        shorten(grow(turns, size), contexts={"fast": 4000, "standard": 4000}).request.messages for turns in range(5, 30)
    ]
    lost = sum(later[: len(before)] != before for before, later in pairwise(prompts))

    assert lost <= len(prompts) * (size + 100) / 5000 + 2


PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}
TEXT = {"type": "text", "text": "Look at this."}


class _Reading(ScriptedTier):
    """A tier that reads a prompt as an `mlx` tier does; `sees`: images and files, too."""

    def __init__(self, name: str, *, sees: bool) -> None:
        super().__init__(name=name, script=[])
        self.woken = False
        self.sees, self.teller = sees, ScriptedTier(name=name, script=[{"answer": ANSWERS["good"][0]}])

    async def stream(self, request: ChatRequest) -> Any:
        self.woken = True
        try:
            if not self.sees:
                tidy_messages(request.messages)
        except RequestRefused as refusal:
            yield [refusal.failed]
            return
        async for events in self.teller.stream(request):
            yield events


def drive_history(history: list[Message], *sees: bool, known: bool = False) -> tuple[Run, str]:
    """Drive a request that shows images along tiers that see them or not; `known`: the Router knows which don't."""

    def change(run: Run) -> None:
        run.request = replace(run.request, messages=tuple(history))

    names = ("fast", "premium")[: len(sees)]
    tiers = {name: _Reading(name, sees=eyes) for name, eyes in zip(names, sees, strict=True)}
    blind = frozenset(name for name, tier in tiers.items() if known and not tier.sees)
    run, events = drive_once(tiers, change, text_only=blind)
    assert any(attempt.fault for attempt in run.attempts) or not blind
    if run.refusal is not None:
        assert not any(tiers[name].woken for name in blind)
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
        lambda media: [user(TEXT, media), user(TEXT)],
        lambda media: [user(TEXT), said("Hm."), user(media, TEXT), user(TEXT), {"role": "system", "content": "Go on."}],
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_what_a_tool_or_an_older_turn_shows_ends_no_session(media: Message, build: Any, known: bool) -> None:
    """A tier that sees answers with all of it; where none does, one answers without, and the report says so. A client
    sends an image that was refused again before the user's next words (Codex)."""
    history = build(media)
    run, text = drive_history(history, False, True, known=known)
    assert (text, run.request.messages) == ("good from premium", tuple(history))
    run, text = drive_history(history, False, False, known=known)
    assert text == "good from fast"
    assert MEDIA_STUB in [part for m in run.request.messages if isinstance(m["content"], list) for part in m["content"]]
    assert "1 images or files" in run.notes[-1]


@pytest.mark.parametrize("known", [False, True])
def test_who_asks_about_an_image_hears_that_no_tier_can_see_it(known: bool) -> None:
    """The newest words of a user are never changed; older media may go, and don't help. A tier of which it is known is
    not woken for it."""
    for newest in ([user(TEXT, PNG)], [user(PNG), user(TEXT)], [user(PNG), {"role": "system", "content": "Be short."}]):
        for past in ([], [user(PNG), said("Hm.")]):
            run, text = drive_history([*past, *newest], False, known=known)
            assert run.refusal is not None
            assert "can't read a content part of type 'image_url'" in run.refusal.message
            assert (text, run.refusal.code) == ("", RefuseCode.UNSUPPORTED)
            assert list(run.request.messages[-len(newest) :]) == newest
