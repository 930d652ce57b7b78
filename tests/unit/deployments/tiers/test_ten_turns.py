"""Ten turns of an agent on every kind of chat template: nothing that was said is lost, nothing is read twice, and what
the model says goes back in."""

import functools
import itertools
import json
from dataclasses import replace
from datetime import datetime

import pytest

from deployments.tiers.history_repair import Mend
from deployments.tiers.prompt import learn_template, read_opening, render, tidy_messages
from deployments.tiers.template_form import TemplateForm
from reliability.tools import ToolBox, build_toolbox, extract_calls
from reliability.types import ChatRequest
from tests.support.agent_sessions import SESSIONS, find_words, list_words
from tests.support.family_templates import FAMILY_TEMPLATES, REWRITTEN, SYSTEMS, TURNS, make_templates
from tests.support.matrices import take_turns
from tests.unit.deployments.tiers.test_prompt import Letters

AT = datetime(2026, 11, 26)
HABITS = take_turns(SYSTEMS, TURNS, SESSIONS)


class Model(Letters):
    """A model whose template says whether it has tools."""

    @property
    def has_tool_calling(self) -> bool:  # type: ignore[override] # a value elsewhere
        return "tools" in str(self.chat_template)


@functools.cache
def learn(template: str) -> tuple[Model, TemplateForm]:
    """Load a template as the tier does."""
    model = Model(template)
    return model, learn_template(model)


Turns = list[tuple[ChatRequest, str, str]]


def write(template: str, session: str) -> Turns:
    """Render a session turn by turn: each request, its prompt, and the opening of the answer at its end."""
    model, form = learn(template)
    assert form.lost == ()
    asked = [one if model.has_tool_calling else replace(one, tools=()) for one in SESSIONS[session]]
    texts = [render(model, request, AT, form) for request in asked]
    opening = len(read_opening(model, asked[0]))
    return [(one, text, text[len(text) - opening :]) for one, text in zip(asked, texts, strict=True)]


def check_words(turns: Turns, form: TemplateForm) -> None:
    """Check that each prompt of a session holds every word once, in the order of the form that the template takes."""
    for request, text, _ in turns:
        assert find_words(text) == list_words(form.apply(tidy_messages(request.messages)))
        assert sorted(find_words(text)) == sorted(list_words(request.messages))


def check_prefix(turns: Turns) -> None:
    """Check that each prompt of a session begins with the history of the one before it."""
    history = ""
    for _, text, opening in turns:
        assert text.startswith(history)
        history = text.removesuffix(opening)


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.further)])
@pytest.mark.parametrize(("system", "turns", "session"), HABITS)
def test_ten_turns_on_every_habit(system, turns, session, half):
    """Law: on each template every word of ten turns is rendered once and in order, and each prompt begins as the one
    before it did. Each half has every kind of call with every kind of result."""
    for n, (_, template) in enumerate(make_templates(system, turns)):
        if (n + n // 2) % 2 != half:
            continue
        written = write(template, session)
        check_words(written, learn(template)[1])
        check_prefix(written)


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("family", FAMILY_TEMPLATES)
def test_ten_turns_of_every_family(family, session):
    """Law: the same for the families; apart from those whose makers write earlier turns anew, which lose the prefix."""
    turns = write(FAMILY_TEMPLATES[family], session)
    check_words(turns, learn(FAMILY_TEMPLATES[family])[1])
    if family not in REWRITTEN:
        check_prefix(turns)


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("family", FAMILY_TEMPLATES)
def test_what_a_model_says_goes_back_in(family, session):
    """Law: each answer's calls and words, written as the family writes them behind the prompt, are read back."""
    model, form = learn(FAMILY_TEMPLATES[family])
    form = replace(form, mends=form.mends - {Mend.PAIR_RESULTS})
    turns = write(FAMILY_TEMPLATES[family], session)
    for (request, _, opening), (later, _, _) in itertools.pairwise(turns):
        box = build_toolbox([dict(tool) for tool in later.tools])
        assert isinstance(box, ToolBox)
        answer = later.messages[len(request.messages)]
        messages = (*request.messages, answer)
        changed = form.apply(tidy_messages(messages))[len(form.apply(tidy_messages(request.messages))) :]
        if len(changed) != 1 or not box.tools:
            continue  # several turns: each of them is an answer of its own
        prompt = render(model, request, AT, form)
        text = render(model, replace(request, messages=messages), AT, form)
        found = extract_calls(text.removeprefix(prompt).removesuffix(opening), box)

        assert text.startswith(prompt)
        assert found.malformed == ()
        assert find_words(found.text) == find_words(json.dumps(answer["content"]))
        assert [(call.name, call.arguments) for call in found.calls] == [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in answer.get("tool_calls") or ()
        ]
