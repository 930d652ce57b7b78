"""What a chat template can't take, and the form that it takes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.history_repair import Mend, mend
from deployments.tiers.prompt import learn_template, render
from deployments.tiers.template_form import _PROBES, AS_WRITTEN, TemplateForm, _holds_words, learn_form
from tests.support.agent_sessions import list_words
from tests.support.family_templates import SOME_TEMPLATES, SYSTEMS, TURNS, make_templates
from tests.support.tier_asking import WEATHER_TOOL, ask
from tests.unit.deployments.tiers.test_prompt import Tokenizer

TEMPLATES = [template for system in SYSTEMS for turns in TURNS for template in make_templates(system, turns)]
KINDS = st.lists(st.sampled_from("SUACR"), min_size=1, max_size=9)


def converse(kinds: list[str]) -> list[dict[str, Any]]:
    """A conversation of these kinds of messages; a result without a call answers the last one."""
    out: list[dict[str, Any]] = []
    for n, kind in enumerate(kinds):
        word = f"said{n:03d}word"
        if kind == "C":
            call = {"id": f"call_{n:024x}", "type": "function", "function": {"name": "f", "arguments": {"place": word}}}
            out.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "R":
            out.append({"role": "tool", "tool_call_id": f"call_{n - 1:024x}", "content": word})
        else:
            out.append({"role": {"S": "system", "U": "user", "A": "assistant"}[kind], "content": word})
    return out


@pytest.mark.parametrize(("shown", "mends"), [("c.id", {Mend.NAME_IDS}), ("c.function.name", set())])
def test_a_call_is_never_without_its_name(shown, mends):
    """Law: a template that writes the id of a call and not its name gets ids that name the tool; nothing is changed
    that a template takes."""
    calls = "{% for c in m.tool_calls or [] %}{{ SHOWN + (c.function.arguments|tojson) }}{% endfor %}"
    text = "{% for m in messages %}{{ m.role + m.content }}" + calls.replace("SHOWN", shown) + "{% endfor %}{{ tools }}"
    form = learn_template(Tokenizer(text))
    assert (form.mends, form.lost) == (mends, ())


@pytest.mark.parametrize(
    ("family", "mends"),
    [
        ("Llama 3", {Mend.SPLIT_CALLS, Mend.SPLIT_WORDS}),
        ("gpt-oss", {Mend.SPLIT_CALLS, Mend.STRIP_CHANNELS, Mend.SOFTEN_SYSTEMS}),
        ("LFM2", {Mend.SAY_CALLS}),
        ("Mistral 7B, Nemo", {Mend.FIT_IDS, Mend.TAKE_TURNS}),
    ],
)
def test_the_gentlest_mends_are_taken(family, mends):
    """Law: two calls become two turns before a call becomes words; roles stay where they can."""
    found = learn_template(Tokenizer(SOME_TEMPLATES[family])).mends

    assert mends <= found
    assert not {Mend.SAY_RESULTS} & found
    assert (Mend.SAY_CALLS in found) == (Mend.SAY_CALLS in mends)


def test_calls_are_written_in_the_models_own_form():
    """Law: a template that leaves calls out gives them as its system prompt says that they are written."""
    tokenizer = Tokenizer(SOME_TEMPLATES["LFM2"])
    form = learn_template(tokenizer)
    text = render(tokenizer, ask(messages=tuple(converse(["U", "C", "R"])), tools=(WEATHER_TOOL,)), form=form)

    assert "<|tool_call_start|>[f(place='said001word')]<|tool_call_end|>" in text


@given(kinds=KINDS, at=st.integers(0, len(TEMPLATES) - 1))
def test_any_conversation_is_rendered_whole(kinds, at):
    """Law: shapes that no probe has are rendered whole as well: every word once, whatever its template."""
    tokenizer, messages = Tokenizer(TEMPLATES[at][1]), converse(kinds)
    text = render(tokenizer, ask(messages=tuple(messages)), form=learn_template(tokenizer))

    assert all(text.count(word) == 1 for word in list_words(messages)), TEMPLATES[at][0]


@given(kinds=KINDS, at=st.integers(0, len(TEMPLATES) - 1))
def test_a_longer_conversation_begins_as_the_shorter_one(kinds, at):
    """Law: what was rendered once is rendered so again: an answer and the user's next words change nothing before."""
    form = learn_template(Tokenizer(TEMPLATES[at][1]))
    messages = converse([*kinds, "U", "A", "U"])
    short, long = form.apply(messages[:-2]), form.apply(messages)

    assert long[: len(short)] == short


PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
RAISING_PARTS = PARTS.replace("{{ part.text }}", "{{ '<' + part.text + '>' }}")


@pytest.mark.parametrize("template", [PARTS, RAISING_PARTS])
def test_contents_are_parts_where_a_template_knows_no_texts(template):
    """Law: a template of a model that sees gets each text as a part, whether it raises at a text or writes nothing."""
    form = learn_template(Tokenizer(template))
    assert Mend.PART_CONTENTS in form.mends
    assert form.lost == ()


THINKING = (
    "{% set ns = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.user = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{{ '<' + m.role + '>' }}"
    "{% if m.role == 'assistant' and (LAST or m.reasoning_content is defined) %}{{ '<think></think>' }}{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}{% endfor %}"
    "{{ tools }}"
)


@pytest.mark.parametrize(("last", "mends"), [("loop.index0 > ns.user", {Mend.GIVE_THOUGHTS}), ("true", set())])
def test_a_thought_that_comes_and_goes_is_given(last, mends):
    """Law: where an empty thought is written in the last turns alone unless a message has one, each answer has one, so
    that the next prompt begins as the one before; where it is written everywhere, nothing changes."""
    form = learn_template(Tokenizer(THINKING.replace("LAST", last)))
    assert (form.mends, form.lost) == (mends, ())


def test_a_template_that_can_not_be_mended_says_what_it_loses():
    """Law: what no mend brings into the prompt is named, and nothing is pretended."""
    form = learn_template(Tokenizer("{% for m in messages %}{% if loop.first %}{{ m.content }}{% endif %}{% endfor %}"))

    assert "an answer that was given" in form.lost
    assert str(form.describe()).startswith("its chat template loses words of ")


def test_calls_are_written_by_the_models_own_marks():
    """Law: where the system prompt says nothing of calls, the first mark of calls among the model's tokens does."""
    said = "Write <|tool_call_start|>[name(key=value)]<|tool_call_end|>. "
    silent = Tokenizer(SOME_TEMPLATES["LFM2"].replace(said, ""))
    silent.add_tokens(["<|tool_call_start|>", "<|tool_call_end|>"])

    assert learn_template(silent).written == "<|tool_call_start|>[{python}]<|tool_call_end|>"


def test_a_template_that_always_raises_ends_at_load():
    """Law: learning never raises, and is bounded."""
    renders = 0

    def fail(messages: list[dict[str, Any]], with_tools: bool) -> str:
        nonlocal renders
        renders += 1
        raise ValueError("no")

    form = learn_form(fail, tools=True)

    assert form.lost == tuple(probe.shape for probe in _PROBES)
    assert renders < 10_000


@given(st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True))
def test_short_ids_keep_calls_apart(ids):
    """Law: other ids become other ids of nine letters and digits, the same for a call and its result."""
    calls = [{"id": id, "function": {"name": "f", "arguments": {}}} for id in ids]
    results = [{"role": "tool", "tool_call_id": id, "content": ""} for id in ids]
    turn, *answers = mend([{"role": "assistant", "content": "", "tool_calls": calls}, *results], {Mend.FIT_IDS})
    short = [call["id"] for call in turn["tool_calls"]]

    assert len(set(short)) == len(ids)
    assert [answer["tool_call_id"] for answer in answers] == short
    assert all(len(id) == 9 and id.isascii() and id.isalnum() for id in short)


def test_words_are_looked_for_once_and_in_order():
    """Law: lost, doubled and moved words are all found."""
    assert _holds_words("a b c", "abc")
    assert not any(_holds_words(text, "abc") for text in ("a b", "a b b c", "b a c"))


def test_nothing_known_changes_nothing():
    """Law: without a form the conversation is as it was written."""
    messages = converse(["S", "U", "C", "R"])
    assert AS_WRITTEN.apply(messages) == messages
    assert TemplateForm(mends=frozenset(Mend), written="{json}").apply([]) == []


def test_a_call_is_written_where_no_form_is_known():
    """Law: the softest form, which is tried where a template refuses all others, loses no call either."""
    *_, softest = AS_WRITTEN.list_softer()
    assert "said001word" in str(softest.apply(converse(["U", "C", "R"])))
