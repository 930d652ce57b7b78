"""A call as JSON between two marks: read strictly, and kept as it is spelled."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.tiers import stream_matchers
from deployments.tiers.stream_matchers import AnswerReader, CallFormat, StopCut, merge_events, strict_json_call
from reliability.tools.format_reasoning import Thought
from reliability.types import CallDelta, Event, Finish, FinishReason, Logprobs, Prefilled, Reasoning, Text, TokenLogprob

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1.0, "b": "é"}}\n</tool_call>'
# Texts made of the pieces that matter, so that markers, halves of markers and calls are common.
MARKS = [CALL, "<tool_call>", "</tool_call>", "<tool", "_call>", "<think>", "</think>", "<thi", "[CALL]"]
FRAGMENTS = st.sampled_from([*MARKS, "{", '{"name": 1}', "stop", "st", "op", "a", " ", "\n", "né"])
TEXTS = st.lists(FRAGMENTS, max_size=12).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


class TestCalls:
    def test_arguments_keep_their_spelling(self) -> None:
        """Law: numbers keep every digit and strings their escapes."""
        arguments = '{"n": 1.00, "big": 123456789012345678901234567890, "s": "\\u00e9"}'
        calls = strict_json_call(f'{{"arguments" : {arguments} , "name": "f"}}')
        assert calls == [("f", arguments)]

    @given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists), max_size=4))
    def test_every_object_survives(self, arguments: dict[str, object]) -> None:
        """Law: whatever the arguments are, they come out as they were written."""
        written = json.dumps(arguments)
        assert strict_json_call(json.dumps({"name": "f", "arguments": arguments})) == [("f", written)]


HERMES = CallFormat("<tool_call>", "</tool_call>", strict_json_call)
CITIES = st.lists(st.sampled_from(["Paris", "Rome", "Köln"]), min_size=1, max_size=6)


class TestDistinct:
    @given(CITIES, st.integers(1, 30))
    def test_a_call_that_was_there_already_ends_the_answer(self, cities: list[str], step: int) -> None:
        """Law: with `distinct` what leaves are the calls before the first one that comes again, however it is spaced
        and however the text is cut; without it all leave."""
        calls = [f'{{"name": "f", "arguments": {{{" " * i}"city": "{c}"}}}}' for i, c in enumerate(cities)]
        text = "\n".join(f"<tool_call>{call}</tool_call>" for call in calls)
        first = next((i for i, city in enumerate(cities) if city in cities[:i]), len(cities))
        for distinct, wanted in ((True, first), (False, len(cities))):
            split = stream_matchers.CallSplit(HERMES, distinct=distinct)
            events = [e for at in range(0, len(text), step) for e in split.feed(text[at : at + step])]
            events += split.finish(truncated=False)
            assert [event.arguments is not None for event in events if isinstance(event, CallDelta)] == [True] * wanted
            assert split.repeated == split.full == (distinct and first < len(cities))


class TestStop:
    @example(("a stop b", ["a stop", " b"]), ["stop"])
    @given(cut_texts(), st.lists(st.sampled_from(["stop", "op", "a st", "né", " \n"]), min_size=1, max_size=3))
    def test_the_first_complete_one_cuts(self, cut: tuple[str, list[str]], stops: list[str]) -> None:
        """Law: the answer ends before the stop string that is complete first; without one it is whole."""
        text, pieces = cut
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
        wanted = text[: min(ends)[1]] if ends else text
        machine = StopCut(stops)
        assert "".join(machine.feed(piece) for piece in pieces) + machine.flush() == wanted
        assert (machine.found in stops) is (machine.found is not None) is bool(ends)

    def test_nothing_is_held_without_need(self) -> None:
        """Law: text that can't begin a stop string leaves at once."""
        assert StopCut(["END"]).feed("a tale of") == "a tale of"


TO_THE_END = CallFormat("[CALL]", "", strict_json_call)
THINK = Thought("tests", ("<think>",), ("</think>",))


def read(pieces: list[str], reader: AnswerReader, *, truncated: bool = False) -> list[Event]:
    events: list[Event] = []
    for piece in pieces:
        if not reader.done:
            events += reader.feed(piece)
    events += reader.finish(truncated=truncated)
    assert all(event.text for event in events if isinstance(event, Text | Reasoning)), "no piece is empty"
    return [
        CallDelta(index=e.index, id="", name=e.name, arguments=e.arguments) if isinstance(e, CallDelta) else e
        for e in merge_events(events)
    ]


def plain(events: list[Event]) -> str:
    """The text that the events stand for, with calls written out as the model wrote them."""
    return "".join(
        f'<tool_call>\n{{"name": "{event.name}", "arguments": {event.arguments}}}\n</tool_call>'
        if isinstance(event, CallDelta)
        else event.text
        for event in events
        if isinstance(event, CallDelta | Text)
    )


class TestCuts:
    @example((f"stop{CALL}", ["st", f"op{CALL}"]), False, False, ("stop",))
    @given(cut_texts(), st.booleans(), st.booleans(), st.sampled_from([(), ("stop",), ("op", "stop", "\n")]))
    def test_the_events_dont_depend_on_the_cuts(self, cut, inside, truncated, stops) -> None:
        """Law: piece by piece or at once, the same events leave."""

        def reader() -> AnswerReader:
            return AnswerReader(stops=stops, think=THINK, inside=THINK if inside else None, calls=HERMES)

        text, pieces = cut
        assert read(pieces, reader(), truncated=truncated) == read([text], reader(), truncated=truncated)

    @given(cut_texts(), st.booleans())
    def test_what_leaves_is_what_came(self, cut: tuple[str, list[str]], truncated: bool) -> None:
        """Law: text and calls, written out again, are the model's text, character by character."""
        text, pieces = cut
        assert plain(read(pieces, AnswerReader(calls=HERMES), truncated=truncated)) == text

    @given(cut_texts())
    def test_without_machines_text_is_untouched(self, cut: tuple[str, list[str]]) -> None:
        """Law: no tools, no tags, no stops: text in, text out."""
        text, pieces = cut
        assert read(pieces, AnswerReader()) == ([Text(text)] if text else [])


def test_stop_strings_dont_reach_into_thinking_or_calls() -> None:
    """Law: a stop string inside the thinking or inside a call stops nothing."""
    reader = AnswerReader(stops=["add", "hm"], think=THINK, calls=HERMES)
    assert [type(event) for event in read([f"<think>hm</think>{CALL}"], reader)] == [Reasoning, CallDelta]


class TestCallsOfAnswers:
    def test_each_call_has_its_index_and_id(self) -> None:
        """Law: calls are counted from 0, and their ids are `call_` and 24 hexadecimal digits, all different."""
        reader = AnswerReader(calls=HERMES)
        calls = [event for event in reader.feed(CALL + "\n" + CALL) if isinstance(event, CallDelta)]
        assert [call.index for call in calls] == [0, 1]
        assert all(call.id and call.id.startswith("call_") and len(call.id) == 29 for call in calls)
        assert calls[0].id != calls[1].id
        assert reader.call_split.calls == 2

    @pytest.mark.parametrize(
        "body",
        [
            "", "{", "[]", '{"name": "f"}', '{"name": 1, "arguments": {}}', '{"name": "", "arguments": {}}',
            '{"name": "f", "arguments": "x"}', '{"name": "f", "arguments": {"a": NaN}}',
            '{"name": "f", "name": "g", "arguments": {}}', '{"name": "f", "arguments": {}, "more": 1}',
            '{"name": "f", "arguments": {}} x', "[" * 100_000,
        ],
    )  # fmt: skip
    def test_what_is_no_call_stays_text(self, body: str) -> None:
        """Law: anything but one whole call between the markers leaves unchanged, as text."""
        text = f"<tool_call>{body}</tool_call>"
        assert read([text], AnswerReader(calls=HERMES)) == [Text(text)]

    def test_an_open_call_is_text(self) -> None:
        """Law: a call that was cut leaves as text, whole calls before it as calls."""
        call, rest = read([CALL + '<tool_call>{"name"'], AnswerReader(calls=HERMES), truncated=True)
        assert (type(call), rest) == (CallDelta, Text('<tool_call>{"name"'))

    @pytest.mark.parametrize(("truncated", "kind"), [(False, CallDelta), (True, Text)])
    def test_a_format_without_an_end_ends_with_the_answer(self, truncated: bool, kind: type) -> None:
        """Law: such a call counts at the end of a whole answer, and not at the end of a cut one."""
        text = '[CALL]{"name": "f", "arguments": {}}'
        events = read([text], AnswerReader(calls=TO_THE_END), truncated=truncated)
        assert [type(event) for event in events] == [kind]

    def test_one_call_is_enough_where_only_one_may_be(self) -> None:
        """Law: with a limit of one the answer is done after the first call."""
        reader = AnswerReader(calls=HERMES, calls_max=1)
        reader.feed(CALL)
        assert reader.done


PIECES = st.text("ab ", min_size=1, max_size=4)
EVENTS = st.lists(
    st.builds(Text, PIECES)
    | st.builds(Reasoning, PIECES)
    | st.builds(Logprobs, st.tuples(st.builds(TokenLogprob, st.binary(max_size=2), st.just(-1.0))))
    | st.builds(CallDelta, index=st.integers(0, 1), id=st.none(), name=st.none(), arguments=PIECES)
    | st.builds(CallDelta, index=st.integers(0, 1), id=st.just("c"), name=st.just("f"), arguments=PIECES)
    | st.just(Finish(reason=FinishReason.STOP)),
    max_size=20,
)


def spelled(events: list[Event]) -> list[object]:
    """All that they say, letter by letter: text and its numbers beside one another, the rest in its order."""
    said: list[object] = []
    texts: list[object] = []
    numbers: list[object] = []
    for event in events:
        match event:
            case Text(text):
                texts += text
            case Logprobs(tokens):
                numbers += tokens
            case Reasoning(text):
                said += [("reasoning", letter) for letter in text]
            case CallDelta():
                said += [("call", event.index, event.id, event.name)] if event.id else []
                said += [("arguments", event.index, letter) for letter in event.arguments]
            case _:
                said.append(event)
    return [texts, numbers, said]


@given(EVENTS)
def test_what_is_said_stays(events: list[Event]) -> None:
    """Law: nothing is lost, invented, or put into another order."""
    assert spelled(merge_events(events)) == spelled(events)


def test_of_reports_of_prefill_the_last_stays() -> None:
    """Law: a reader that was away gets one report, which alone in its batch stops no timeout."""
    first, last = (Prefilled(tokens=tokens, of_tokens=9, left_s=1.0) for tokens in (1, 8))
    assert merge_events([first, last]) == [last]


@given(EVENTS)
def test_no_two_neighbours_could_be_one(events: list[Event]) -> None:
    """Law: of text, reasoning, and pieces of one call there is one event in a row; merging again changes nothing."""
    merged = merge_events(events)

    for one, other in pairwise(merged):
        assert not (type(one) is type(other) and isinstance(one, Text | Reasoning | Logprobs))
        if isinstance(one, CallDelta) and isinstance(other, CallDelta):
            assert other.id is not None or other.index != one.index
    assert merge_events(merged) == merged
