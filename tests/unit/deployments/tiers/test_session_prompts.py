"""The last prompts of sessions: what stays a prefix, and what is said where it doesn't."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.prompt import render
from deployments.tiers.session_prompts import _DATE_S, _PROMPTS_MAX, SessionPrompts
from reliability.prefix import LostPrefix, PrefixChange
from tests.support.tier_asking import ask
from tests.unit.deployments.tiers.test_prompt import GPT_OSS, Letters

NOW = datetime(2026, 11, 24, 12, 0)
SYSTEM = {"role": "system", "content": "Be good."}
# The reasoning of earlier turns is left out once the user speaks again, as Qwen3's template does it.
FORGETFUL = """{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}
{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for m in messages %}{{- '<' + m.role + '>' }}
{%- if m.reasoning_content and loop.index0 > ns.last %}{{- '<think>' + m.reasoning_content + '</think>' }}{%- endif %}
{{- m.content }}{%- endfor %}{%- if add_generation_prompt %}{{- '<assistant><think>' }}{%- endif %}"""
KEPT = "((preserve_thinking is defined and preserve_thinking) or loop.index0 > ns.last)"
KEEPING = FORGETFUL.replace("loop.index0 > ns.last", KEPT)


def tool(name: str, says: str = "") -> dict[str, Any]:
    parameters = {"properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "description": says, "parameters": parameters}}


class Tier:
    """Renders as the tier does, and remembers the prompts."""

    def __init__(self, template: str | None = None, **options: Any) -> None:
        self.tokenizer = Letters(template)
        self.sessions = SessionPrompts(self.tokenizer, **options)
        self.tokens: list[int] = []
        self.text = ""

    def ask(self, messages: Sequence[dict[str, Any]], now: datetime = NOW, **fields: Any) -> LostPrefix | None:
        prepared = self.sessions.prepare(ask(messages=tuple(messages), **fields), now)
        self.text = render(self.tokenizer, prepared.request, prepared.at)
        self.tokens = self.tokenizer.encode(self.text)
        return self.sessions.note(prepared, self.tokens)


TEXTS = st.text("abc", min_size=1, max_size=6)
TURNS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5)
TOOLS = st.lists(st.sampled_from(["read", "write", "list", "find"]), min_size=1, max_size=4, unique=True)


def talk(turns: Sequence[tuple[str, str]], last: str = "and?") -> list[dict[str, Any]]:
    return [SYSTEM, *(message for turn in turns for message in say(*turn)), {"role": "user", "content": last}]


def say(user: str, assistant: str) -> list[dict[str, Any]]:
    return go_on(assistant, user)[::-1]


def go_on(assistant: str = "a", user: str = "b") -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": assistant}, {"role": "user", "content": user}]


@given(TURNS, TURNS, TOOLS, st.booleans())
def test_a_history_that_goes_on_loses_nothing(turns, more, names, thinking) -> None:
    """Law: a conversation that only goes on is never reported, on any template that renders it as before."""
    tools = tuple(map(tool, names))
    for template in (None, KEEPING):
        tier = Tier(template)
        for end in range(len(turns) + len(more) + 1):
            said = talk([*turns, *more])[: 2 + 2 * end]
            assert tier.ask(said, tools=tools, thinking=thinking) is None
        assert len(tier.sessions._sessions) == 1


@given(TURNS, st.permutations(["read", "write", "list", "find"]), st.randoms(use_true_random=False))
def test_permuted_tools_are_rendered_as_before(turns: list[tuple[str, str]], order: list[str], dice: Any) -> None:
    """Law: the same tools, in another order and with their keys in another, go on with the first order's prompt."""
    tools = [tool(name) for name in order]
    tier, straight = Tier(), Tier()
    tier.ask(talk(turns), tools=tuple(tools))
    straight.ask(talk(turns), tools=tuple(tools))
    dice.shuffle(tools)
    mixed = [json.loads(json.dumps(one, sort_keys=True)) for one in tools]
    assert tier.ask(talk([*turns, ("and?", "b")]), tools=tuple(mixed)) is None
    straight.ask(talk([*turns, ("and?", "b")]), tools=tuple(tool(name) for name in order))
    assert tier.text == straight.text


def change_system(messages: list[dict[str, Any]], fields: dict[str, Any], _: Any) -> None:
    messages[0] = {**SYSTEM, "content": "Be good. It is noon."}


def change_tools(messages: list[dict[str, Any]], fields: dict[str, Any], dice: Any) -> None:
    first, *rest = fields["tools"]
    new = tool("new")
    others = [(first, *rest, new), (first, *rest[:-1]), (new, first, *rest), (tool("read", "anew"), *rest)]
    fields["tools"] = dice.choice(others)


def change_options(messages: list[dict[str, Any]], fields: dict[str, Any], _: Any) -> None:
    fields["extra"] = {"chat_template_kwargs": {"few_shot": False}}


def change_history(messages: list[dict[str, Any]], fields: dict[str, Any], dice: Any) -> None:
    at = dice.randrange(2, len(messages) - 1)
    put_in = {"role": "user", "content": "put in"}
    messages[at : at + 1] = dice.choice([[{**messages[at], "content": "another"}], [put_in, messages[at]], []])


CHANGES = {
    PrefixChange.SYSTEM_PROMPT: change_system, PrefixChange.TOOLS: change_tools, PrefixChange.OPTIONS: change_options,
    PrefixChange.HISTORY: change_history,
}  # fmt: skip


@given(TURNS, st.sampled_from(sorted(CHANGES)), st.randoms(use_true_random=False))
def test_a_change_is_reported_where_it_is(turns: list[tuple[str, str]], change: PrefixChange, dice: Any) -> None:
    """Law: one change of anything is reported with its reason and the first token that differs; where no token of the
    history differs there is nothing to report. Once reported it is not reported again."""
    fields: dict[str, Any] = {"tools": (tool("read"), tool("write"))}
    tier, messages = Tier(), talk(turns)
    tier.ask(messages, **fields)
    before = tier.tokens
    messages += go_on("So.", "Go on.")
    CHANGES[change](messages, fields, dice)
    lost = tier.ask(messages, **fields)
    both = min(len(before), len(tier.tokens))
    differs = next((i for i in range(both) if before[i] != tier.tokens[i]), both)
    opening = len("<|im_start|>assistant\n")
    told = None if differs >= both - opening else (differs, len(before) - opening, (change,))
    assert (lost and (lost.token, lost.of, lost.changes)) == told
    assert tier.ask([*messages, *go_on()], **fields) is None


def test_what_is_spelled_otherwise_is_no_change() -> None:
    """Law: a message that says the same in another form (parts, no content, arguments with other spaces) is none that
    the history changed at; the one that the prompt differs from is."""

    def converse(content: Any, none: Any, arguments: str, result: str) -> list[dict[str, Any]]:
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
        called = {"role": "assistant", "content": none, "tool_calls": [call]}
        returned = {"role": "tool", "tool_call_id": "c", "content": result}
        return [SYSTEM, {"role": "user", "content": content}, called, returned]

    tier = Tier()
    tier.ask(converse("Read it.", "", '{"path": "a"}', "long"))
    parts = [{"type": "text", "text": "Read it."}]
    lost = tier.ask(converse(parts, None, '{"path":"a"}', "cut"))
    assert (lost and lost.detail) == "the history changed at message 3 (tool): it was rewritten"


def test_reasoning_that_the_template_drops_is_the_templates_doing() -> None:
    """Law: where the conversation only went on and an earlier part of it is rendered otherwise, the template is named;
    a template that can keep the reasoning is told to, and nothing is lost."""
    user, said = say("Go.", "Yes.")
    said["reasoning_content"] = "hmm"
    result = {"role": "tool", "content": "done"}
    for template, expected in ((FORGETFUL, (PrefixChange.TEMPLATE,)), (KEEPING, None)):
        tier = Tier(template)
        assert tier.ask([user]) is None
        assert tier.ask([user, said, result]) is None
        lost = tier.ask([user, said, result, said, user])
        assert (lost and lost.changes) == expected


def test_what_the_server_adds_is_no_part_of_the_history() -> None:
    """Law: a nudge or a correction at the end loses nothing, and neither does the next turn, which doesn't have it; a
    change before it is told once."""
    tier, nudge = Tier(), {"role": "user", "content": "You repeat yourself."}
    first, second = talk([]), talk([("and?", "So.")])
    assert tier.ask(first) is None
    assert tier.ask([*first, nudge], added=1) is None
    assert tier.ask(second) is None
    other = [{**SYSTEM, "content": "Be bad."}, *second[1:]]
    lost = tier.ask([*other, nudge], added=1)
    assert (lost and lost.changes) == (PrefixChange.SYSTEM_PROMPT,)
    assert tier.ask([*other, nudge], added=1) is None


def test_helpers_of_one_session_go_on_each_with_its_own() -> None:
    """Law: several conversations under one session's name take turns without a word, once each has begun; more of them
    than are kept are forgotten, the oldest first."""
    tier = Tier()
    talks = [[{**SYSTEM, "content": f"{n}"}, {"role": "user", "content": f"task {n}"}] for n in range(_PROMPTS_MAX)]
    lost = [tier.ask(one) for one in talks]
    assert lost[0] is None
    assert all(one is not None and one.changes == (PrefixChange.NEW_CONVERSATION,) for one in lost[1:])
    for one in (*talks, *talks[::-1]):
        assert tier.ask([*one, *go_on()]) is None


def test_going_back_to_an_earlier_place_loses_nothing() -> None:
    """Law: a prompt that the last one begins with is found whole, and so is the last one after it."""
    tier, turns = Tier(), [("a", "b"), ("c", "d")]
    assert tier.ask(talk(turns)) is None
    assert tier.ask(talk(turns)[:4]) is None
    assert tier.ask(talk([*turns, ("and?", "So.")])) is None


def test_a_session_is_its_keys() -> None:
    """Law: the same name under another key is another session: neither its order nor its tools are seen there."""
    tier = Tier()
    tier.ask(talk([("a", "b")]), tools=(tool("secret"), tool("other")), key="one")
    assert tier.ask(talk([("x", "y")]), tools=(tool("other"), tool("secret")), key="two") is None
    assert tier.text.index('"other"') < tier.text.index('"secret"')


def test_a_sessions_date_stands_still_for_a_day() -> None:
    """Law: midnight changes no prompt of a session that runs; a day after it began the date is today's, and the change
    is named. Another session has its own."""
    tier, late = Tier(GPT_OSS), NOW.replace(hour=23)
    assert tier.ask(talk([]), now=late) is None
    assert tier.ask(talk([("and?", "So.")]), now=late + timedelta(hours=2)) is None
    assert "2026-11-24" in tier.text
    tier.ask(talk([]), now=late + timedelta(hours=2), session_id="other")
    assert "2026-11-25" in tier.text
    lost = tier.ask(talk([("and?", "So."), ("and?", "y")]), now=late + timedelta(seconds=_DATE_S + 1))
    assert (lost and lost.changes) == (PrefixChange.DATE,)


def test_tools_that_are_left_out_are_named() -> None:
    """Law: with `tool_choice` none the template writes no tools, which changes all that follows them."""
    tier = Tier()
    tier.ask(talk([]), tools=(tool("read"),))
    lost = tier.ask(talk([("and?", "So.")]), tools=(tool("read"),), tool_choice="none")
    assert "removed: read" in str(lost and lost.detail)


@given(TURNS, TOOLS, st.booleans(), st.booleans())
def test_a_summary_begins_as_the_history_that_it_sums_up(turns, names, forbids, alike) -> None:
    """Law: an order for a summary of the session's history, under another system prompt, without its tools or with
    calls forbidden, reads nothing again but the order; without room for that (`keep`) it is rendered as it came."""
    tier, order = Tier(), {"role": "user", "content": "Sum up."}
    tools = tuple(map(tool, names))
    tier.ask(talk(turns), tools=tools)
    before = tier.tokens
    history = talk([*turns, ("and?", "So.")])[1:-1]
    messages = [SYSTEM if alike else {**SYSTEM, "content": "You sum up."}, *history, order]
    given = {"tools": tools, "tool_choice": "none"} if forbids else {}
    request = ask(messages=tuple(messages), summarizes=True, **given)
    as_it_came = tier.sessions.prepare(request, NOW, keep=False).request
    assert (as_it_came.messages, as_it_came.tools) == (request.messages, request.tools)
    assert tier.ask(messages, summarizes=True, **given) is None
    assert tier.text.endswith("Sum up.<|im_end|>\n<|im_start|>assistant\n")
    assert tier.tokens[: len(before)] == before


def test_a_summary_of_something_else_keeps_its_own_prompt() -> None:
    """Law: an order with the conversation as a text, or a history that the session doesn't know, changes nothing."""
    for messages in (
        [{**SYSTEM, "content": "You sum up."}, {"role": "user", "content": "<conversation>x</conversation> Sum up."}],
        [{**SYSTEM, "content": "You sum up."}, *say("q", "r"), {"role": "user", "content": "Sum up."}],
    ):
        tier = Tier()
        tier.ask(talk([("x", "y")]), tools=(tool("read"),))
        tier.ask(messages, summarizes=True)
        assert "You sum up." in tier.text
        assert '"read"' not in tier.text


@given(st.lists(st.tuples(st.integers(0, 5), TURNS), max_size=20))
def test_memory_is_bounded(asked: list[tuple[int, list[tuple[str, str]]]]) -> None:
    """Law: never more bytes than allowed, and the count is right; the session used longest ago goes first."""
    tier = Tier(bytes_max=8_000)
    for name, turns in asked:
        tier.ask(talk(turns), session_id=f"s-{name}")
        held = tier.sessions._sessions
        assert tier.sessions.nbytes == sum(session.nbytes for session in held.values()) <= 8_000
        assert not held or list(held)[-1] == ("", f"s-{name}")


VALUES = st.none() | st.integers() | st.text()


@given(st.recursive(VALUES, lambda inner: st.dictionaries(st.text(), inner), max_leaves=4))
def test_any_value_can_be_remembered(value: Any) -> None:
    """Law: remembering any request (halves of surrogate pairs, numbers of any size) raises nothing."""
    sessions, tools = Tier().sessions, ({"function": value}, {"name": value})
    request = ask("\ud800", tools=tools, extra={"chat_template_kwargs": {"x": value}})
    for _ in range(2):
        assert sessions.note(sessions.prepare(request, NOW), [1, 2, 3]) is None
