"""The marks of a local model's reasoning, by its tokenizer or its template, and where its prompt ends within it."""

from typing import Any

import pytest

from deployments.tiers.thinking import find_opened, find_thinking
from tests.support.thought_marks import OPENED as FAMILIES
from tests.support.thought_marks import row_of


class Tokenizer:
    """A tokenizer of which only the chat template is known."""

    def __init__(self, chat_template: str, **more: Any) -> None:
        self.chat_template = chat_template
        self.__dict__.update(more)

    def encode(self, text: str, **_: Any) -> list[str]:
        return list(text)


# What stands in the chat templates of models of which mlx-lm names no marks, and how their prompts end.
TEMPLATES = {
    "Magistral": ("{{ '[THINK]' + m.thinking + '[/THINK]' }}", "[INST]Hi[/INST]", ("[THINK]", "[/THINK]", "")),
    "Seed-OSS": (
        "{{ '<seed:think>' }}{{ r }}{{ '</seed:think>' }}",
        "<seed:bos>assistant\n<seed:think>\n",
        ("<seed:think>", "</seed:think>", ""),
    ),
    "Command A": (
        "{{ '<|START_THINKING|>' + r + '<|END_THINKING|>' }}<|START_RESPONSE|>{{ c }}<|END_RESPONSE|>",
        "<|CHATBOT_TOKEN|><|START_THINKING|>",
        ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"),
    ),
    "Apriel": (
        "Here are my reasoning steps:\n{{ r }}\n[BEGIN FINAL RESPONSE]\n{{ c }}\n[END FINAL RESPONSE]",
        "<|begin_assistant|>\nHere are my reasoning steps:\n",
        ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", ""),
    ),
    "gpt-oss": (
        "<|start|>assistant<|channel|>analysis<|message|>{{ r }}<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|start|>assistant",
        (
            "<|start|>assistant<|channel|>analysis<|message|>",
            "<|end|>",
            "<|start|>assistant<|channel|>final<|message|>",
        ),
    ),
    "Solar Open": (
        "<|begin|>assistant<|think|>{{ r }}<|end|><|begin|>assistant<|content|>{{ c }}<|end|>",
        "<|begin|>assistant<|think|>",
        ("<|think|>", "<|end|>", "<|begin|>assistant"),
    ),
}
OPENED = {"Seed-OSS", "Command A", "Apriel", "Solar Open"}


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_marks_of_a_model_are_found_in_its_template(family: str) -> None:
    """Law: opener, closer and what its answer begins with, where mlx-lm names none; and whether a prompt ends within
    reasoning, in the marks of any family."""
    template, prompt, marks = TEMPLATES[family]
    thinking = find_thinking(Tokenizer(template))

    assert thinking is not None
    assert (thinking.start, thinking.end, thinking.says) == marks
    assert (find_opened(prompt, thinking) is thinking.row) == (family in OPENED)
    assert find_opened(f"{prompt}hm\n{thinking.end}\n\n", thinking) is None


def test_what_mlx_lm_names_comes_first() -> None:
    """Law: its marks are the model's, in the table or not; without either there are none."""
    named = Tokenizer("[THINK][/THINK]", has_thinking=True, think_start="<think>", think_end="</think>")
    strange = Tokenizer("", has_thinking=True, think_start="<hm>", think_end="</hm>")

    assert [find_thinking(one).start for one in (named, strange)] == ["<think>", "<hm>"]  # type: ignore[union-attr]
    assert find_opened("assistant\n<hm>", found := find_thinking(strange)) is found.row  # type: ignore[union-attr]
    assert find_thinking(Tokenizer("{{ c }} <think> is said of others")) is None


@pytest.mark.parametrize(
    ("marks", "close"),
    [
        (("<think>", "</think>"), "\n</think>\n\n"),
        (("<|open|>think<|sep|>", "<|close|>think<|sep|>"), "<|close|>think<|sep|><|open|>response<|sep|>"),
    ],
)
def test_reasoning_is_closed_as_the_model_does(marks: tuple[str, str], close: str) -> None:
    """Law: with the line breaks of a tag, and with what opens the answer behind special tokens."""
    start, end = marks
    tokenizer = Tokenizer("<|open|>response<|sep|>", has_thinking=True, think_start=start, think_end=end)
    thinking = find_thinking(tokenizer)

    assert thinking is not None
    assert "".join(map(str, thinking.encode_closing(tokenizer))) == close


@pytest.mark.parametrize("marks", FAMILIES, ids=lambda marks: marks[0].strip())
def test_a_prompt_that_ends_with_any_familys_opener_opens_it(marks: tuple[str, ...]) -> None:
    """Law: white space behind it or not, whatever the model's own marks are; behind a closer nothing is open."""
    opener, closer = marks[0].strip(), marks[1].strip()
    assert find_opened(f"<|user|>Hi\n<|assistant|>{opener}\n") is row_of(opener, closer)
    assert find_opened(f"<|assistant|>{opener}\n\n{closer}\n\n") is None
    assert find_opened(f"<|user|>What is {opener}?\n<|assistant|>") is None
