"""How an answer begins: what of it is no answer, and that there is one."""

import asyncio
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.masker import Speller, Vocabulary
from deployments.tiers.mlx.job_builder import JobBuilder, _describe_excess, _forbid_result, _resume, _Resumed
from deployments.tiers.mlx.loading import _read_turn_start
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.sequence import EngineJob, SequenceState
from deployments.tiers.thinking import ReasoningMarks
from reliability.tools.format_reasoning import MESSAGES, Thought
from reliability.types import Event, Finish
from tests.support import tiny_model
from tests.support.matrices import take_turns
from tests.support.mlx_rig import greedy, ready
from tests.support.tier_asking import answer, text_of

pytestmark = pytest.mark.model
CHATML = "<|im_start|>assistant\n"
_WITHOUT_THOUGHT = "m.content.split('</think>')[-1]"


@pytest.fixture(scope="module")
def loaded(tier: MlxTier) -> Any:
    return tier._engine.phase.loaded


@pytest.fixture(scope="module")
def tokenizer(loaded: Any) -> Any:
    return loaded.tokenizer


def builder_of(loaded: Any, cap: int | None = None) -> JobBuilder:
    return JobBuilder(loaded, temperature=None, reasoning_tokens_max=cap)


def said(tokenizer: Any, text: str) -> str:
    tokens = tokenizer.encode(text, add_special_tokens=False)
    turn_start = _read_turn_start(tokenizer)
    job = EngineJob(prompt=[0], max_tokens=len(tokens), sink=lambda _: None, turn_start=turn_start)
    row = SequenceState(1, job, tokenizer.detokenizer)
    for place, token in enumerate(tokens, 1):
        row.take(token, "length" if place == len(tokens) else None, mx.zeros(1))
    return text_of(row.outbox.pending)


def test_the_opening_is_the_templates(tokenizer: Any) -> None:
    """Law: it is what stands behind the conversation in a prompt, and nothing where a template opens no turn with a
    token of its own, or raises."""

    class Other:
        added_tokens_decoder = tokenizer.added_tokens_decoder

        def __init__(self, opening: str | None) -> None:
            self.opening = opening

        def apply_chat_template(self, _: Any, *, add_generation_prompt: bool, **__: Any) -> str:
            if self.opening is None:
                raise ValueError("a system prompt is needed")
            return "asked" + (self.opening if add_generation_prompt else "")

        def encode(self, text: str, **options: Any) -> Any:
            return tokenizer.encode(text, **options)

    assert tokenizer.decode(list(_read_turn_start(tokenizer))) == CHATML
    assert [_read_turn_start(Other(text)) for text in ("ASSISTANT:", "", None)] == [(), (), ()]
    assert tokenizer.decode(list(_read_turn_start(Other(CHATML)))) == CHATML


@pytest.mark.parametrize("opening", [CHATML, "<|im_start|>assistant", "<|im_start|>", ""])
@pytest.mark.parametrize("words", ["The file has 3 lines.", '{"name": "read_file"}'])
def test_a_turn_that_is_opened_again_is_no_part_of_the_answer(tokenizer: Any, opening: str, words: str) -> None:
    """Law: the answer begins behind it, whole or in part; the same token further on is text. Who only opens his
    turn has said nothing, so that the answer counts as the empty one that it is."""
    assert said(tokenizer, opening + words).strip() == words
    assert said(tokenizer, f"See {CHATML}").strip() == f"See {CHATML}".strip()
    assert said(tokenizer, opening) == ""


def test_who_must_speak_says_a_word(tier: MlxTier, tokenizer: Any) -> None:
    """Law: however much a model would rather end, or open a turn, or write blanks, there is a word before its end. The
    first is the likeliest, whatever the temperature: what is left over is no choice."""
    silent = [*tokenizer.eos_token_ids, _read_turn_start(tokenizer)[0]]
    asked = replace(greedy("Hi"), max_tokens=12, extra={"logit_bias": {str(token): 100 for token in silent}})

    def words(request: Any) -> str:
        return text_of(ask(tier, request)).strip()

    # What an answer begins with is the grammar's, where there is one.
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "maxProperties": 0}}}
    assert words(replace(asked, must_speak=True, response_format=schema, extra={})).startswith("{")
    assert words(asked) == ""
    assert words(replace(asked, must_speak=True)) not in ("", "<|im_start|>")
    drawn = [replace(asked, must_speak=True, temperature=1.5, seed=seed, max_tokens=1) for seed in range(5)]
    assert len({words(one) for one in drawn}) == 1


class _Marked:
    """A tokenizer whose template has marks of its own."""

    def __init__(self, inner: Any, template: Any, call: str | None) -> None:
        self.encode, self.decode = inner.encode, inner.decode
        self.chat_template, self.tool_call_start = template, call


MARKS = ["<tool_response>", "<|tool_response|>", "[TOOL_RESULTS]", "<start_function_response>"]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("call", ["<tool_call>", "[TOOL_CALLS]", "<start_function_call>", None])
@pytest.mark.parametrize("before", ["", "\n\n"])
def test_no_answer_begins_with_the_mark_of_a_result(tokenizer: Any, mark: str, call: str | None, before: str) -> None:
    """Law: of the tokens of the mark that the template puts before results one is forbidden, behind white space too,
    and it is the first that doesn't begin a call as well. All else is free, and behind a word the processor is over."""
    (process,) = _forbid_result(_Marked(tokenizer, f"{{{{ '{mark}\\n' + content }}}}", call), 1)

    def forbids(text: str) -> list[bool]:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        out = [process(mx.array([0, *tokens[:place]]), mx.zeros((1, 50_000))) for place in range(len(tokens))]
        forbidden = [one is not None and one[0, token].item() < 0 for one, token in zip(out, tokens, strict=True)]
        assert all(one is None or (one == -mx.inf).sum().item() <= 1 for one in out)
        return forbidden

    assert sum(forbids(before + mark)) == 1
    assert not any(any(forbids(f"{before}{text}")) for text in (call or "Well.", "<b>", "[1]"))
    assert process(mx.array([0, *tokenizer.encode("It is sunny.")]), mx.zeros((1, 50_000))) is None


@pytest.mark.parametrize("call", ["<tool_call>", "<tool_request>", "<tools_called>"])
def test_a_call_that_only_the_template_knows_is_free(tokenizer: Any, call: str) -> None:
    """Law: where mlx-lm knows no mark of the model's calls, that of the template is as free."""
    template = f"{{{{ '{call}' + name }}}} {{{{ '<tool_response>' + content }}}}"
    (process,) = _forbid_result(_Marked(tokenizer, template, None), 1)
    tokens = tokenizer.encode(call, add_special_tokens=False)
    for place, token in enumerate(tokens):
        out = process(mx.array([0, *tokens[:place]]), mx.zeros((1, 50_000)))
        assert out is None or out[0, token].item() == 0


@pytest.mark.parametrize("template", [None, {"default": "<tool_response>"}, "{{ content }}", ""])
def test_where_a_template_marks_no_results_nothing_is_forbidden(tokenizer: Any, template: Any) -> None:
    """Law: without a template that is one text and has such a mark there is no processor."""
    assert _forbid_result(_Marked(tokenizer, template, "<tool_call>"), 1) == []


PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "country": {"type": "string", "maxLength": 40}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": PLACE}}
ASKED = {
    "prose": greedy("Tell me about Paris.", max_tokens=40),
    "code": greedy("Write a Python function that adds two numbers.", max_tokens=48),
    "letters": greedy("Repeat: Zażółć gęślą jaźń 日本語 😀 naïve", max_tokens=40),
    "stopped": greedy("Count from 1 to 9, separated by commas.", max_tokens=40, stop=(" 7",)),
    "penalties": greedy("Tell me about Rome.", max_tokens=32, extra={"frequency_penalty": 0.7}),
    "schema": greedy("Which city is the capital of France?", max_tokens=60, response_format=SCHEMA),
}


def ask(tier: MlxTier, request: Any) -> list[Event]:
    return asyncio.run(answer(tier, request))


@pytest.fixture(scope="module")
def whole(tier: MlxTier) -> Any:
    return cache(lambda name: ask(tier, ASKED[name]))


@pytest.fixture(scope="module")
def speller(tokenizer: Any) -> Speller:
    return Speller(Vocabulary(tokenizer))


NIGHTLY = [pytest.param(*one, marks=pytest.mark.nightly) for one in product(ASKED, (0.02, 0.36, 0.5, 0.8, 0.97))]


@pytest.mark.parametrize(("name", "share"), [*take_turns(ASKED, (0.21, 0.67)), *NIGHTLY])
def test_the_rest_of_a_text_is_what_it_would_have_been(tier: MlxTier, whole: Any, name: str, share: float) -> None:
    """Law: on the same model with the same settings the two pieces are the unbroken text, wherever it was cut: within
    a word, a number, a character's escape, before a stop string. And both together may write as much as one."""
    unbroken, request = text_of(whole(name)), ASKED[name]
    cut = max(1, int(share * len(unbroken)))
    end = whole(name)[-1]
    events = ask(tier, replace(request, begun=unbroken[:cut]))

    assert (unbroken[:cut] + text_of(events))[: len(unbroken)] == unbroken
    assert isinstance(events[-1], Finish)
    if end.reason == "stop":
        assert unbroken[:cut] + text_of(events) == unbroken
        assert events[-1].reason == end.reason


def test_what_was_begun_is_read_and_not_written(tier: MlxTier, whole: Any) -> None:
    """Law: the tokens of what stands count as prompt, the few of its last word and the new ones as answer; and those
    few aren't taken off what the client may have."""
    unbroken, end = text_of(whole("prose")), whole("prose")[-1]
    rest = ask(tier, replace(ASKED["prose"], begun=unbroken[: len(unbroken) // 2], max_tokens=9))[-1]

    assert rest.usage.prompt_tokens > end.usage.prompt_tokens
    assert 9 <= rest.usage.completion_tokens <= 9 + 6


@pytest.mark.parametrize(
    "begun", take_turns(["Qxzzy the 7", "«", "  indented", "end. ", "é", "a\ttab", "<|im_end|>", "😀"])
)
def test_words_that_no_model_would_write_are_gone_on_with(tier: MlxTier, begun: str) -> None:
    """Law: whatever stands, an answer goes on behind it: it may be another model's."""
    events = ask(tier, replace(ASKED["prose"], begun=begun))

    assert isinstance(events[-1], Finish), events
    assert not text_of(events).startswith(begun)


def test_a_begun_answer_that_fills_the_context_is_refused(tier: MlxTier) -> None:
    """Law: it is measured with the prompt."""
    assert ask(tier, replace(ASKED["prose"], begun="word " * 9000))[-1].fault == "context_length"


def test_a_prompt_that_leaves_no_room_for_an_answer_is_too_long(tier: MlxTier, loaded: Any) -> None:
    """Law: where a sentence or call would be cut off by the context's end, the next tier is asked instead; a client
    that wants a few tokens gets them."""
    words = "word " * (loaded.context_tokens * 97 // 100)
    long = replace(ASKED["prose"], messages=({"role": "user", "content": words},), max_tokens=1000)
    assert "for an answer" in ask(tier, long)[-1].message

    few, _ = builder_of(loaded).build(replace(long, max_tokens=4), print)
    assert few.max_tokens == 4
    assert len(few.prompt) + few.max_tokens <= loaded.context_tokens


@pytest.mark.parametrize(
    ("tools", "loader", "wanted"),
    [
        pytest.param(20, "", "; over half of it are the 20 tools: declare fewer or set `tools: deferred`", id="many"),
        pytest.param(20, "load_tools", "; over half of it are the 20 tools: declare fewer", id="deferred"),
        pytest.param(3, "", "; over half of it are the 3 tools: declare fewer", id="too few to defer"),
        pytest.param(1, "", "", id="a small part"),
    ],
)
def test_a_prompt_that_its_tools_make_too_long_says_how_to_shorten_them(tools: int, loader: str, wanted: str) -> None:
    """Law: the error names what can be shortened: the messages alone can't, where tools are over half of the prompt."""
    function = {"description": "x" * 1000, "parameters": {}}
    shown = tuple({"type": "function", "function": {"name": f"tool_{n}", **function}} for n in range(tools))
    request = replace(ASKED["prose"], tools=shown, loader=loader)
    said = _describe_excess(-3_616, 16_384, request, "x" * 1100 * max(tools, 3))

    plain = "the prompt has 20,000 tokens; this tier's context holds 16,384"
    assert said.removesuffix(" for this tier") == plain + wanted


THINKING = ReasoningMarks(Thought("tests", ("<think>",), ("</think>",)), "<think>", "</think>")


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60), reasoning=st.sampled_from(["", "Let me see."]), opened=st.booleans())
def test_tokens_and_rest_are_the_text(tokenizer: Any, speller: Speller, text: str, reasoning: str, opened: bool):
    """Law: to the byte, for any text; the rest begins at its last word or before."""
    assume(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text)
    made = _resume(tokenizer, speller, text, reasoning, THINKING, opened=opened)
    spelled, thought = b"".join(map(speller.bytes_of, made.tokens)) + made.rest, f"{reasoning}</think>\n\n"

    if not text:
        assert made == _Resumed()
        return
    assert spelled.endswith(text.encode())
    assert spelled.removesuffix(text.encode()).decode() in ("", f"<think>{thought}", thought)
    assert text.split()[-1:] == [] or made.rest
    assert bool(made.rest) == bool(made.again)
    assert _resume(tokenizer, None, text, "", None, opened=False).rest == b""


@pytest.mark.parametrize(
    ("tokens_max", "budget", "cap", "limit"),
    [
        pytest.param(4_096, None, 8_192, 3_072, id="the answer's tokens end before the cap"),
        pytest.param(32_000, None, None, 30_976, id="no more than 1,024 are left"),
        pytest.param(32_000, None, 8_192, 8_192, id="the cap is lower"),
        pytest.param(4_096, 4_000, 8_192, 4_000, id="a budget that ends before the answer holds"),
        pytest.param(1_000, 2_048, 8_192, 750, id="a budget that doesn't is none"),
        pytest.param(1, None, None, 1, id="nothing to share"),
    ],
)
def test_a_thought_leaves_room_for_the_answer(loaded, tokens_max, budget, cap, limit):
    """Law: the least of cap and budget ends a thought, and where neither does so before the answer's tokens end, what
    leaves a quarter of those."""
    request = replace(greedy("hi"), max_tokens=tokens_max, thinking_tokens_max=budget)

    assert builder_of(loaded, cap)._limit_thought(request, THINKING, free=True).tokens_max == limit


@pytest.mark.parametrize(
    ("thinking", "row", "limit"),
    [
        pytest.param(None, THINKING.row, 3_072, id="as the model does"),
        pytest.param(True, THINKING.row, 3_072, id="wanted"),
        pytest.param(False, THINKING.row, 0, id="off"),
        pytest.param(False, MESSAGES[0], 3_072, id="a message of its own"),
    ],
)
def test_thinking_that_is_off_has_no_budget(loaded, thinking, row, limit):
    """Law: a thought that a template opens all the same is closed at once, unless calls are led to by it."""
    request = replace(greedy("hi"), max_tokens=4_096, thinking=thinking)

    assert builder_of(loaded)._limit_thought(request, replace(THINKING, row=row), free=True).tokens_max == limit


@pytest.mark.parametrize(("prompt", "tokens_max"), [("hi " * 100, 400), ("hi " * 10, 100), ("hi " * 130, 4_096)])
@pytest.mark.parametrize("fields", [{}, {"thinking_tokens_max": 3_000}, {"thinking": False}])
def test_a_model_that_only_thinks_answers_within_its_context(tmp_path, monkeypatch, prompt, tokens_max, fields):
    """Law: whether its tokens or its context end the answer first, a thought leaves room for words behind it; one that
    isn't wanted has a token."""
    opens = "<|im_start|>assistant\\n<think>\\n"
    template = tiny_model.TEMPLATE.replace("<|im_start|>assistant\n", opens).replace("m.content", _WITHOUT_THOUGHT)
    monkeypatch.setattr(tiny_model, "TEMPLATE", template)
    monkeypatch.setattr(tiny_model, "CONTEXT", 512)
    tiny = ready(model=f"path:{tiny_model.write_folder(tmp_path / 'tiny')}")
    events = asyncio.run(answer(tiny, greedy(prompt, max_tokens=tokens_max, seed=1, temperature=1.0, **fields)))
    asyncio.run(tiny.close())

    assert text_of(events).strip()
    assert isinstance(events[-1], Finish)
    assert events[-1].thought is not None
    assert "thinking" not in fields or events[-1].usage.reasoning_tokens < 20


@pytest.mark.parametrize(("parent", "above"), [("s", ("k", "s")), ("", None)])
def test_a_helper_s_session_and_the_one_above_are_of_its_key(loaded: Any, parent: str, above: Any) -> None:
    """Law: two keys' sessions of one name are two; a request that helps none has none above."""
    request = replace(greedy("hi"), key="k", session_id="s.a", parent=parent)
    job, _ = builder_of(loaded).build(request, lambda _: None)

    assert (job.reuse.session, job.reuse.parent) == (("k", "s.a"), above)
