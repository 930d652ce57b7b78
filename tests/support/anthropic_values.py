"""Requests and answers of Anthropic's Messages, as Hypothesis draws them."""

from typing import Any

from hypothesis import strategies as st

from reliability.types import CallDelta, Event, Finish, FinishReason, Reasoning, Refusal, Text, Usage

WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
SAID = WORDS.filter(lambda text: bool(text.strip()))
MARKER = {"type": "ephemeral"}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TOOL = {
    "name": "read_file",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
FLAT = st.dictionaries(WORDS, st.integers(-9, 9) | WORDS | st.booleans() | st.none(), max_size=3)


def marked(block: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """The block, with a marker of the prompt cache or without."""
    return st.builds(lambda one, mark: one | ({"cache_control": MARKER} if mark else {}), block, st.booleans())


texts = marked(st.builds(lambda text: {"type": "text", "text": text}, SAID))
images = marked(st.just({"type": "image", "source": PIXEL}))
thoughts = st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, SAID)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """An answer that may call tools, and what follows it: the results, and what stands beside them."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": "read_file", "input": draw(FLAT)}
        for i in range(draw(st.integers(0, 2)))
    ]
    said = draw(st.lists(texts, min_size=0 if calls else 1, max_size=2))
    answer = [*draw(st.lists(thoughts, max_size=1)), *said, *calls]
    told = marked(st.builds(lambda content: {"content": content}, SAID | st.lists(texts | images, max_size=2)))
    results = [{"type": "tool_result", "tool_use_id": call["id"], **draw(told)} for call in calls]
    beside = draw(st.lists(texts | images, min_size=0 if calls else 1, max_size=2))
    out = [{"role": "assistant", "content": answer}, {"role": "user", "content": [*results, *beside]}]
    return out + draw(st.lists(st.builds(lambda text: {"role": "system", "content": text}, SAID), max_size=1))


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    history = [{"role": "user", "content": draw(SAID | st.lists(texts | images, min_size=1, max_size=3))}]
    for number in range(draw(st.integers(0, 3))):
        history += draw(turns(number))
    body: dict[str, Any] = {"model": "auto", "max_tokens": 100, "messages": history, "tools": [TOOL]}
    optional = {
        "system": SAID | st.lists(texts, min_size=1, max_size=3),
        "stream": st.booleans(),
        "temperature": st.floats(0, 1),
        "top_k": st.integers(0, 100),
        "stop_sequences": st.lists(SAID, max_size=2),
        "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any", "disable_parallel_tool_use": True}]),
        "thinking": st.sampled_from([{"type": "adaptive"}, {"type": "disabled"}]),
        "metadata": st.just({"user_id": "me"}),
    }
    return body | draw(st.fixed_dictionaries({}, optional=optional))


ARGUMENTS = ('{"path": "a"}', "{}", '{"path": "é\\n", "n": [1, 2.5]}')


@st.composite
def answers(draw: st.DrawFn) -> list[list[Event]]:
    """The batches of an answer as `drive` yields them: thoughts and text in any order, then complete calls."""
    pieces: list[Event] = draw(st.lists(SAID.map(Text) | SAID.map(Reasoning), max_size=8))
    pieces += draw(st.lists(SAID.map(Refusal), max_size=2))
    for index in range(draw(st.integers(0, 3))):
        arguments = draw(st.sampled_from(ARGUMENTS))
        cut = draw(st.integers(0, len(arguments)))
        pieces.append(CallDelta(index=index, id=f"call_{index}", name="read_file", arguments=arguments[:cut]))
        pieces += [CallDelta(index=index, arguments=arguments[cut:])] if cut < len(arguments) else []
    batches: list[list[Event]] = []
    while pieces:
        size = draw(st.integers(1, len(pieces)))
        batches.append(pieces[:size])
        pieces = pieces[size:]
    return batches


finishes = st.builds(
    Finish,
    reason=st.sampled_from(FinishReason),
    stop=st.none() | st.sampled_from(["END", "other"]),
    usage=st.none()
    | st.builds(
        Usage,
        prompt_tokens=st.integers(100, 200),
        completion_tokens=st.integers(0, 99),
        cached_tokens=st.integers(0, 100),
        reasoning_tokens=st.integers(0, 9),
    ),
)
