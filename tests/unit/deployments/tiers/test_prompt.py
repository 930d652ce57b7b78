"""From a request to a prompt or a refusal."""

from datetime import datetime
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from deployments.tiers import prompt as module
from deployments.tiers.mlx.sampling import Sampling, read_sampling
from deployments.tiers.prompt import RequestRefused, find_checkpoints, read_date, read_opening, render, tidy_messages
from reliability.types import Fault
from tests.support.repository import ROOT
from tests.support.tier_asking import WEATHER_TOOL, ask

ANYWHERE = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
TAKES_TURNS = """{% for m in messages %}{% if m.role == 'system' and not loop.first %}
{{ raise_exception('a system message stands at the head') }}{% endif %}
{% if not loop.first and m.role == loop.previtem.role %}{{ raise_exception('roles take turns') }}{% endif %}
{{- m.role }}:{{ m.content }}|{% endfor %}"""
TEMPLATE = ROOT / "deployments" / "models" / "smollm2_tools.jinja"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}}


def read_said(text: str) -> tuple[dict[str, str], ...]:
    """The messages that `ANYWHERE` writes so."""
    said = (one.split(":", 1) for one in text.removesuffix("|").split("|"))
    return tuple({"role": role, "content": content} for role, content in said)


class Tokenizer(PreTrainedTokenizerFast):  # type: ignore[misc] # transformers has no types
    """A real tokenizer of transformers, whose renderer is the one that the tier uses."""

    has_tool_calling = True

    def __init__(self, chat_template: str | None = None) -> None:
        super().__init__(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()))
        self.chat_template = chat_template or TEMPLATE.read_text()


class DeafTokenizer(Tokenizer):
    """One whose template knows no tools."""

    has_tool_calling = False


class Letters(Tokenizer):
    """One whose tokens are the letters."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]


CONTENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text"]), inner),
    max_leaves=6,
)


class TestTidied:
    def test_the_narrow_form(self) -> None:
        """Law: content is text, developer is system, past arguments are objects."""
        messages: list[dict[str, Any]] = [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
        ]
        first, second = tidy_messages(messages)
        assert first == {"role": "system", "content": "ab"}
        assert second["content"] == ""
        assert second["tool_calls"][0]["function"]["arguments"] == {"a": "é"}

    def test_a_refusal_is_what_was_said(self) -> None:
        """Law: a model reads its refusal as its words, whether it stands beside the content or in it."""
        part = {"type": "refusal", "refusal": "No."}
        for said in ({"content": None, "refusal": "No."}, {"content": [part]}, {"content": "No.", "refusal": None}):
            assert tidy_messages([{"role": "assistant", **said}]) == [{"role": "assistant", "content": "No."}]

    def test_a_picture_is_unsupported(self) -> None:
        """Law: a part that this tier can't read is refused, not skipped."""
        part = {"type": "image_url", "image_url": {"url": "data:,"}}
        with pytest.raises(RequestRefused) as caught:
            tidy_messages([{"role": "user", "content": [part]}])
        assert (caught.value.failed.fault, caught.value.failed.param) == (Fault.UNSUPPORTED, "messages")

    @example([{"type": "text", "text": 5}])
    @given(CONTENTS)
    def test_any_content_is_text_or_refused(self, content: Any) -> None:
        """Law: for every JSON value as content, a string or a refusal."""
        assert refusal_of(content) in (None, "messages")


def refusal_of(content: Any) -> str | None:
    """The field that is refused, or None where the content becomes text."""
    try:
        (message,) = tidy_messages([{"role": "user", "content": content}])
    except RequestRefused as refused:
        return refused.failed.param
    return None if isinstance(message["content"], str) else "no text"


class TestSampling:
    def test_the_request_goes_before_the_tier(self) -> None:
        """Law: a field of the request wins, a missing one is the tier's."""
        defaults = Sampling(temperature=0.6, top_p=0.9, top_k=20)
        assert read_sampling(ask(), defaults, 100) == defaults
        asked = read_sampling(ask(temperature=0.0, top_p=0.1, seed=7, extra={"top_k": 3}), defaults, 100)
        assert (asked.temperature, asked.top_p, asked.top_k, asked.seed) == (0.0, 0.1, 3, 7)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("top_k", value) for value in ("warm", -1, True, float("nan"))),
            *(("presence_penalty", 2.1), ("frequency_penalty", "much"), ("repetition_penalty", 0), ("logit_bias", [1])),
            *(("logit_bias", {token: 1}) for token in ("100", "-1", "9" * 5000, "\u0663")),
            *(("logit_bias", {"1": bias}) for bias in (101, 10**400)),
        ],
    )
    def test_a_value_out_of_bounds_never_reaches_the_model(self, field: str, value: Any) -> None:
        """Law: what is no number, what is over OpenAI's bounds, and tokens that the model doesn't have are refused as
        the request's fault, by their field."""
        with pytest.raises(RequestRefused) as caught:
            read_sampling(ask(extra={field: value}), Sampling(), 100)
        assert (caught.value.failed.fault, caught.value.failed.param) == (Fault.BAD_REQUEST, field)

    def test_penalties_and_biases_are_taken(self) -> None:
        """Law: what is within bounds arrives."""
        extra = {"presence_penalty": -2, "frequency_penalty": 0.5, "repetition_penalty": 1.3}
        asked = read_sampling(ask(extra=extra | {"logit_bias": {"99": -100}}), Sampling(), 100)
        assert asked == Sampling(**extra, logit_bias=((99, -100.0),))


class TestCheckpoints:
    def test_they_stand_where_the_system_prompt_and_the_turn_end(self) -> None:
        """Law: with and without tools, the first place is behind the system prompt (not in the user's words), and with
        `turns` the second one is before the answer begins."""
        tokenizer = Letters()
        for tools in ((), (WEATHER_TOOL,)):
            request = ask("Hello there.", tools=tools)
            text = render(tokenizer, request)
            prompt = tokenizer.encode(text, add_special_tokens=False)
            (system,) = find_checkpoints(tokenizer, request, prompt, turns=False)
            assert text[:system].endswith("<|im_start|>user\n")
            assert "Hello" not in text[:system]
            answer = text.index("<|im_start|>assistant\n", system)
            assert find_checkpoints(tokenizer, request, prompt, turns=True) == (system, answer)

    def test_a_template_that_refuses_parts_gives_none(self) -> None:
        """Law: where a part of the conversation can't be rendered there is no checkpoint, and no error."""
        picky = Tokenizer("{% if messages|length < 2 %}{{ nothing.here }}{% endif %}{{ messages[0].content }}")
        assert find_checkpoints(picky, ask("Hi"), [1, 2], turns=True) == ()


class TestOpening:
    def test_it_is_what_only_a_prompt_to_be_answered_has(self) -> None:
        """Law: the opening is the end of the prompt that isn't there where nobody is to answer; none where a template
        has none, or can't render so little."""
        assert len(read_opening(Letters(), ask(tools=(WEATHER_TOOL,)))) == len("<|im_start|>assistant\n")
        assert read_opening(Letters(ANYWHERE), ask()) == []
        assert read_opening(Letters("{{ nothing.here }}"), ask()) == []
        assert read_opening(Letters("{{ 'a' if add_generation_prompt else 'b' }}"), ask()) == []


class TestTemplate:
    def test_without_tools_it_is_the_models_own(self) -> None:
        """Law: without tools the text is that of the template that the model was trained on."""
        assert render(Tokenizer(), ask("Hi")) == (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_tools_come_with_examples_that_can_be_left_out(self) -> None:
        """Law: the tools stand in the system prompt, two examples follow unless `few_shot` is false."""
        text = render(Tokenizer(), ask(tools=(WEATHER_TOOL,)))
        assert '"get_weather"' in text
        assert text.count("<|im_start|>assistant\n<tool_call>") == 2
        bare = render(Tokenizer(), ask(tools=(WEATHER_TOOL,), extra={"chat_template_kwargs": {"few_shot": False}}))
        assert "<|im_start|>assistant\n<tool_call>" not in bare

    def test_a_history_of_calls_is_rendered(self) -> None:
        """Law: past calls and their results stand in the prompt, text beside them too."""
        messages = (
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "Well.", "tool_calls": [CALL, CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "one"},
            {"role": "tool", "tool_call_id": "c", "content": "two"},
        )
        text = render(Tokenizer(), ask(messages=messages, tools=(WEATHER_TOOL,)))
        call = '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
        assert f"<|im_start|>assistant\nWell.\n{call}\n{call}<|im_end|>\n" in text
        results = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
        assert f"<|im_start|>user\n{results}<|im_end|>\n" in text
        assert text.startswith("<|im_start|>system\nBe short.\n")

    def test_tool_choice_none_hides_the_tools(self) -> None:
        """Law: with tool_choice none the model sees no tools."""
        assert "get_weather" not in render(Tokenizer(), ask(tools=(WEATHER_TOOL,), tool_choice="none"))

    def test_a_template_without_tools_refuses_them(self) -> None:
        """Law: tools that the template would leave out are refused."""
        with pytest.raises(RequestRefused) as caught:
            render(DeafTokenizer("{{ messages[0].content }}"), ask(tools=(WEATHER_TOOL,)))
        assert caught.value.failed.param == "tools"

    def test_a_template_that_raises_leaves_the_request_to_another_tier(self) -> None:
        """Law: what the template refuses is the request's fault, with the template's words."""
        with pytest.raises(RequestRefused, match=r"chat template can't render.*missing") as caught:
            render(Tokenizer("{{ missing.field }}"), ask())
        assert caught.value.failed.fault is Fault.UNSUPPORTED

    def test_a_system_message_in_between_is_the_users_where_a_template_knows_none(self) -> None:
        """Law: what an agent says as the system in the middle of a conversation reaches a model whose template takes it
        at the head only, or wants roles to take turns; one that takes it anywhere gets it in its place."""
        messages = read_said("system:Be good.|user:hi|system:Later.|assistant:Hello.|system:Last.|")
        strict, free = (render(Tokenizer(template), ask(messages=messages)) for template in (TAKES_TURNS, ANYWHERE))

        assert strict == "system:Be good.|user:hi\n\nLater.|assistant:Hello.|user:Last.|"
        assert free == "system:Be good.|user:hi|system:Later.|assistant:Hello.|system:Last.|"

    def test_a_system_message_changes_nothing_of_what_stood_before_it(self) -> None:
        """Law: where a template takes system messages at the head only, one in the middle leaves the messages before
        it as they were rendered without it: two of the user's stay two, unless roles must take turns."""
        head_only = TAKES_TURNS.replace("m.role == loop.previtem.role", "false")
        before = read_said("user:Here is what there is.|user:Go.|assistant:Gone.|")
        softened = before + read_said("user:On.|system:Later.|user:Still on.|")
        first, second = (render(Tokenizer(head_only), ask(messages=messages)) for messages in (before, softened))

        assert second == f"{first}user:On.\n\nLater.\n\nStill on.|"
        assert render(Tokenizer(TAKES_TURNS), ask(messages=softened)).startswith("user:Here is what there is.\n\nGo.|")

    @pytest.mark.parametrize(
        ("name", "value"),
        [("preserve_thinking", True), ("clear_thinking", False), ("truncate_history_thinking", False)],
    )
    def test_a_template_that_can_keep_earlier_reasoning_is_told_to(self, name: str, value: bool) -> None:
        """Law: templates are told so by the name that they know, and by no other; a client may say otherwise."""
        tokenizer = Tokenizer(f"{{{{ {name} }}}}{{{{ nothing | default('') }}}}")
        own = {"chat_template_kwargs": {name: not value}}

        assert render(tokenizer, ask()) == str(value)
        assert render(tokenizer, ask(extra=own)) == str(not value)
        assert set(module.read_template_options(tokenizer, ask())) == {name}
        assert module.read_template_options(Tokenizer(), ask()) == {}

    def test_thinking_is_switched_by_the_request(self) -> None:
        """Law: the template's usual variable says whether to think, unless the request sets it itself."""
        template = "{{ enable_thinking | default('as it likes') }}"
        own = {"chat_template_kwargs": {"enable_thinking": "mine"}}

        assert [render(Tokenizer(template), ask(thinking=one)) for one in (None, False)] == ["as it likes", "False"]
        assert render(Tokenizer(template), ask(thinking=True, extra=own)) == "mine"

    def test_a_client_cant_bring_its_own_template(self) -> None:
        """Law: only template variables may be set, not the template."""
        with pytest.raises(RequestRefused) as caught:
            render(Tokenizer(), ask(extra={"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}))
        assert caught.value.failed.param == "chat_template_kwargs"


MONDAY = datetime(2026, 11, 23, 23, 59)
TUESDAY = datetime(2026, 11, 24, 0, 1)
# As Llama 3 has it, and as gpt-oss has it.
LLAMA = """{%- if not date_string is defined %}{%- if strftime_now is defined %}
{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{{- "Today Date: " + date_string + "|" }}{%- for m in messages %}{{- m.content }}{%- endfor %}"""
GPT_OSS = """{{- "Current date: " + strftime_now('%Y-%m-%d') + "|" }}
{%- for m in messages %}{{- m.content }}{% endfor %}"""


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
    assert module._hold_date(Tokenizer(LLAMA), None) is None
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
    """Law: a template without a date, or one that calls the clock in a way that isn't known, is left alone; so is a
    model that is rendered by code."""
    tokenizer, coded = Tokenizer(template), Tokenizer(GPT_OSS)
    coded._chat_template = lambda *_: "rendered by code"
    for one in (tokenizer, coded):
        assert module._hold_date(one, MONDAY) is None
        assert read_date(one, MONDAY) == ""
