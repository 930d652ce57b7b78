"""What a chat template leaves out, written into the words of a conversation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.history_repair import Mend, mend
from deployments.tiers.history_words import find_written, say_calls
from reliability.tools import build_toolbox, extract_calls
from tests.support.call_values import words

CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": {"place": "Bern"}}}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abé \"'\n\\{}", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
PROMPTS = {
    "": "<tool_call>\n{json}\n</tool_call>",
    "Write <tool_call>{...}</tool_call>.": "<tool_call>{json}</tool_call>",
    "Write <|tool_call_start|>[f(a=1)]<|tool_call_end|>.": "<|tool_call_start|>[{python}]<|tool_call_end|>",
    'Write <|tool_call|>[{"name": "f"}].': "<|tool_call|>[{json}]",
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_form_is_what_the_system_prompt_names(prompt):
    """Law: the first mark that opens calls, and behind it the form that is read back; Hermes' form without any."""
    assert find_written(prompt) == PROMPTS[prompt]


@pytest.mark.parametrize("prompt", PROMPTS)
@given(arguments=st.dictionaries(words | st.sampled_from(["for", "my-key"]), VALUES, max_size=4))
def test_a_call_that_is_written_is_read_back(prompt, arguments):
    """Law: what a model reads as its own call is that call, with each value as it was."""
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    [message] = say_calls([{"role": "assistant", "content": "", "tool_calls": [call]}], find_written(prompt))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    found = extract_calls(message["content"], build_toolbox(tools))

    assert [(one.name, one.arguments) for one in found.calls] == [("look", arguments)]
    assert "tool_calls" not in message


def test_words_beside_a_call_get_a_turn_of_their_own():
    """Law: the words come before the call; a call alone stays as it is."""
    both, alone = [{"role": "assistant", "content": text, "tool_calls": [CALL]} for text in ("I look.", "")]

    assert mend([both], {Mend.SPLIT_WORDS}) == [{"role": "assistant", "content": "I look."}, alone]
    assert mend([alone], {Mend.SPLIT_WORDS}) == [alone]


def test_of_an_answer_in_channels_its_words_stay():
    """Law: thoughts and marks go, what was said to the user stays; an answer without marks is left alone."""
    said = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is Bern."
    messages = [{"role": "assistant", "content": text} for text in (said, "It is `<|message|>`.")]

    stripped = mend(messages, {Mend.STRIP_CHANNELS})
    assert [message["content"] for message in stripped] == ["It is Bern.", "It is `<|message|>`."]
