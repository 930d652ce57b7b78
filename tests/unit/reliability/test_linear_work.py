"""What grows with what a client or a model sends is done once for each thing sent, counted."""

import json
from collections.abc import Callable

import pytest

from reliability.context_edits import ClearResults, apply_edits
from reliability.steps import OutOfSteps, Steps
from reliability.tools import CheckConfig, RawCall, check_calls, corrective_message, extract_calls
from reliability.tools.check.calls import assign
from reliability.tools.schema.references import Places
from reliability.tools.schema.tool_names import ToolNames
from reliability.types import ChatRequest
from tests.support.call_values import IDS, made
from tests.support.counted_work import Row, Word, count_work, measure_growth
from tests.support.renderings import tool

Do = Callable[[], object]


def clear(size: int, **rule: object) -> Do:
    """As many results as calls of one turn, and as many names in a rule as results."""
    calls = [{"id": f"c{n}", "function": {"name": Word(f"f{n}"), "arguments": "x" * 40}} for n in range(size)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "y" * 90} for n in range(size)]
    messages = ({"role": "assistant", "content": None, "tool_calls": Row(calls)}, *results)
    request = ChatRequest(messages=messages, max_tokens=9, session_id="s", request_id="r", timeout_s=9.0)
    edit = ClearResults(uses_over=0, keep=0, unread=True, **{name: value(size) for name, value in rule.items()})
    return lambda: apply_edits(request, (edit,))


def list_words(size: int) -> tuple[str, ...]:
    return tuple(Word(f"g{n}") for n in range(size))


def name_tools(size: int) -> frozenset[str]:
    return frozenset(list_words(size))


def branch(size: int) -> dict[str, object]:
    """A schema of as many references to a part, and as many schemas in that part."""
    part = {"allOf": [{} for _ in range(size)]}
    return {"type": "object", "$defs": {"d": part}, "allOf": [{"$ref": "#/$defs/d"} for _ in range(size)]}


def judge_texts(size: int) -> Do:
    box = made([tool("f", branch(size) | {"properties": {"list": {"items": {"type": "string"}}}})])
    texts = [f"no {n}" for n in range(size)]
    raw = [RawCall(name="f", arguments=json.dumps({"list": texts}), format="json")]
    return lambda: check_calls(raw, box, new_id=IDS)


def judge_standins(size: int) -> Do:
    names = [f"p{n}" for n in range(size)]
    given = dict.fromkeys(names, "string")
    box = made([tool("f", {"properties": {name: {"type": "string"} for name in names}, "required": list_words(size)})])
    raw = [RawCall(name="f", arguments=given, format="native")]
    return lambda: check_calls(raw, box, config=CheckConfig(), new_id=IDS, conversation=["hi"])


def extract_keys(size: int) -> Do:
    box = made([tool("f", branch(size))])
    keys = "".join(f"<parameter=p{n}>\nx\n</parameter>\n" for n in range(size))
    return lambda: extract_calls(f"<tool_call>\n<function=f>\n{keys}</function>\n</tool_call>", box)


def extract_items(size: int) -> Do:
    """A list of as many texts, each typed by a schema of as many parts."""
    box = made([tool("f", {"$defs": branch(size)["$defs"], "properties": {"a": {"items": branch(size)}}})])
    token = "]<]minimax[>["
    items = "".join(f"{token}<item>x{token}</item>" for _ in range(size))
    text = f'{token}<tool_call>{token}<invoke name="f">{token}<a>{items}{token}</a>{token}</invoke>{token}</tool_call>'
    assert extract_calls(text, box).calls
    return lambda: extract_calls(text, box)


def ask_again(size: int) -> Do:
    names = [f"p{n}" for n in range(size)]
    box = made([tool("f", {"properties": {name: {} for name in names}, "required": names[::-1]})])
    return lambda: corrective_message((), box)


def share_names(size: int) -> Do:
    return lambda: ToolNames(tuple(f"t{n}.a.b.c" for n in range(size)))


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda size: clear(size, spared=name_tools), id="results and spared tools"),
        pytest.param(lambda size: clear(size, inputs=name_tools), id="results and tools whose arguments go"),
        pytest.param(lambda size: clear(size, inputs=lambda _: None), id="arguments of one turn's calls"),
        pytest.param(judge_texts, id="texts and parts of the schema"),
        pytest.param(judge_standins, id="placeholders and required keys"),
        pytest.param(extract_keys, id="keys of a call and parts of the schema"),
        pytest.param(extract_items, id="items of a list and parts of the schema"),
        pytest.param(ask_again, id="required keys of a re-ask"),
        pytest.param(share_names, id="tools whose inner names are the same"),
    ],
)
def test_twice_as_much_is_twice_the_work(prepare: Callable[[int], Do]) -> None:
    """Law: where a client or a model sends twice as much of two things at once, at most two and a half times the work
    is done."""
    assert measure_growth(prepare, 45) <= 2.5


def test_a_signature_costs_what_is_shown_of_it() -> None:
    """Law: a re-ask writes of a tool's parameters as many as there is room for, however many there are."""
    assert count_work(ask_again(2_000)) <= 1.5 * count_work(ask_again(400))


def test_looking_into_a_schema_is_paid_for() -> None:
    """Law: the judgement of texts spends a step for each schema that it looks at; each place is looked at once; final
    steps never run out."""
    names = [f"p{n}" for n in range(40)]
    box = made([tool("f", branch(90) | {"additionalProperties": {"type": "string"}})])
    raw = [RawCall(name="f", arguments={name: f"no {name}" for name in names}, format="native")]
    with pytest.raises(OutOfSteps):
        check_calls(raw, box, new_id=IDS, steps=Steps(5_000))
    assert check_calls(raw, box, new_id=IDS, steps=Steps(100_000)).calls
    assert check_calls(raw, box, new_id=IDS, steps=Steps(5_000, final=True)).calls

    texts = [RawCall(name="f", arguments={"p": [f"no {name}" for name in names]}, format="native")]
    assert check_calls(texts, made([tool("f", branch(90))]), new_id=IDS, steps=Steps(5_000)).calls


def test_of_too_many_forms_nothing_is_told() -> None:
    """Law: a member of an object that too many forms judge may be anything, and is looked up in bounded work; what
    fewer say is told to the word."""
    few, many = ({"anyOf": [{"properties": {"a": {"type": "null"}}} for _ in range(size)]} for size in (900, 9_000))
    assert Places(few).find_types(Places(few).find_member(few, "a")) == {"null"}
    assert Places(few).find_member(few, "b") is None
    assert Places(many).find_types(Places(many).find_member(many, "a")) is None
    assert count_work(lambda: Places(many).find_member(many, "a")) < 1_000


def test_a_new_id_costs_nothing_of_the_old_ones() -> None:
    """Law: each call without an id gets one of its own, whatever the history and the other calls hold."""
    used = [f"call_{n}" for n in range(300)]
    given = [None, "call_301", None, "call_0", None]

    found = assign(given, used, lambda n: f"call_{n}")

    assert len(set(found)) == len(found)
    assert found[1] == "call_301"
    assert not {*found} & {*used}
