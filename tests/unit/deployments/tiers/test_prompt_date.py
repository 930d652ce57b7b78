"""The date that a chat template writes."""

from __future__ import annotations

from datetime import datetime

import pytest

from deployments.tiers.prompt import hold_date, read_date, render
from tests.support.tier_asking import ask
from tests.unit.deployments.tiers.test_prompt import Tokenizer

MONDAY = datetime(2026, 11, 23, 23, 59)
TUESDAY = datetime(2026, 11, 24, 0, 1)
# As Llama 3 has it, and as gpt-oss has it.
LLAMA = """{%- if not date_string is defined %}{%- if strftime_now is defined %}
{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{{- "Today Date: " + date_string + "|" }}{%- for m in messages %}{{- m.content }}{%- endfor %}"""
GPT_OSS = (
    """{{- "Current date: " + strftime_now('%Y-%m-%d') + "|" }}{%- for m in messages %}{{- m.content }}{% endfor %}"""
)


@pytest.mark.parametrize(
    ("template", "date"), [(LLAMA, "Today Date: 23 Nov 2026|"), (GPT_OSS, "Current date: 2026-11-23|")]
)
def test_the_date_is_that_of_the_moment(template: str, date: str) -> None:
    """Law: the same moment gives the same prompt, whenever it is rendered; another day gives another one."""
    tokenizer = Tokenizer(template)
    assert render(tokenizer, ask("Hi"), MONDAY) == f"{date}Hi"
    assert render(tokenizer, ask("Hi"), TUESDAY) != f"{date}Hi"
    assert read_date(tokenizer, MONDAY) in date


def test_without_a_moment_it_is_now() -> None:
    """Law: who names no moment gets the template as its maker wrote it."""
    assert hold_date(Tokenizer(LLAMA), None) is None
    assert f"{datetime.now():%Y}" in render(Tokenizer(GPT_OSS), ask("Hi"))


def test_a_date_that_a_client_names_wins() -> None:
    """Law: a template's own variable for the date stays the client's to set."""
    request = ask("Hi", extra={"chat_template_kwargs": {"date_string": "1 Jan 2000"}})
    assert render(Tokenizer(LLAMA), request, MONDAY) == "Today Date: 1 Jan 2000|Hi"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}",
        "{% set how = '%Y' %}{{ strftime_now(how) }}{{ messages[0].content }}",
        "{{ strftime_now('%d') }}{{ strftime_now('%Y' ~ '') }}",
        None,
    ],
)
def test_what_cant_be_held_stays_as_it_is(template: str | None) -> None:
    """Law: a template without a date, or one that calls the clock in a way that isn't known, is left alone."""
    tokenizer = Tokenizer(template)
    assert hold_date(tokenizer, MONDAY) is None
    assert read_date(tokenizer, MONDAY) == ""


def test_a_renderer_in_python_is_left_alone() -> None:
    """Law: a model that is rendered by code, and not by its template, is given none."""
    tokenizer = Tokenizer(GPT_OSS)
    tokenizer._chat_template = lambda *_: "rendered by code"
    assert hold_date(tokenizer, MONDAY) is None
