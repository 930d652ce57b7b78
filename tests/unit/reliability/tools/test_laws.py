"""The laws of tool calls: nothing is lost, nothing is changed, nothing is invented, nothing crashes."""

import json
import re
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reliability import tools
from reliability.tools import BadTools, CheckConfig, RawCall, build_toolbox, check_calls, extract_calls
from reliability.tools.extract.literal import Unreadable, dump, read
from reliability.tools.format_reasoning import REASONING_CLOSE, REASONING_OPEN
from reliability.tools.turns import MARK
from reliability.types import ToolCall
from tests.evals.damages import DAMAGES
from tests.support import call_values, renderings
from tests.support.call_values import IDS, NAMES, arguments, box_for, json_values, made, nearly_calls, scalars, schemas
from tests.support.renderings import ALL, JSON, fits, schema_of, tool
from tests.values_fuzz import CANT_SAY, Tally, run

names = st.sampled_from(NAMES)
LITERAL = CheckConfig(placeholders=())  # drawn strings may look like placeholders, and are meant here
laws = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)

LIKE_JSON = re.compile(r'"[^"]*\\[xU]')
EMPTY_THOUGHT = re.compile(rf"(?:{REASONING_OPEN.pattern})\s*\Z", re.IGNORECASE)


def exact(value) -> str:
    return json.dumps(value, sort_keys=True)


def judged(raw, box, *, new_id=IDS, **more):
    return check_calls(raw, box, None, None, LITERAL, new_id=new_id, **more)


def checked(found, box, **more):
    return judged(found.calls, box, malformed=found.malformed, **more)


@pytest.mark.parametrize("kind", ALL)
@laws
@given(name=names, value=arguments, prose=st.sampled_from(["", "I'll look that up.", "Erst das hier:\n"]))
def test_a_call_is_extracted_exactly_whatever_it_is_written_in(kind, name, value, prose):
    """A valid call, rendered in any notation, comes back with its name and every value as it was, and prose stays to
    the letter."""
    assume(fits(kind, value) and not (prose and kind in ("name and json", "python alone")))
    assume(kind not in ("pythonic", "pythonic in marks", "python tag", "python alone") or "-" not in name)
    box = box_for(**{name: value})

    rendered = ALL[kind](name, value)
    prose = prose and f"{prose}\n{rendered[: len(rendered) - len(rendered.lstrip())]}"
    found = extract_calls(prose + rendered.lstrip(), box)
    verdict = checked(found, box)

    assert not found.malformed
    assert verdict.violations == ()
    assert [(call.name, exact(json.loads(call.arguments))) for call in verdict.calls] == [(name, exact(value))]
    assert found.text == found.before == prose


@pytest.mark.parametrize("kind", [kind for kind in JSON if "without" not in kind])
@laws
@given(first=arguments, second=arguments)
def test_no_call_of_several_is_dropped(kind, first, second):
    """Two calls in one answer are two calls, in order, in every notation that can stand twice."""
    box = box_for(get_weather=first, q7=second)
    found = extract_calls(JSON[kind]("get_weather", first) + "\n" + JSON[kind]("q7", second), box)
    assert not found.malformed
    assert [(call.name) for call in found.calls] == ["get_weather", "q7"]
    verdict = checked(found, box)
    assert [exact(json.loads(call.arguments)) for call in verdict.calls] == [exact(first), exact(second)]


@laws
@given(name=names, value=arguments)
def test_a_native_call_passes_to_the_letter(name, value):
    """A valid native call is delivered with its very text and id, and nothing is recorded."""
    text = json.dumps(value, indent=1)
    verdict = judged([RawCall(name=name, arguments=text, id="own")], box_for(**{name: value}))
    assert verdict.calls == (ToolCall(id="own", name=name, arguments=text),)
    assert verdict.repairs == ()


@pytest.mark.parametrize("damage", DAMAGES)
@laws
@given(name=names, value=arguments, seed=st.integers(0, 2**32))
def test_a_damaged_call_is_mended_or_refused(damage, name, value, seed):
    """A repair gives back the value before the damage, to the type; what can't be mended is refused with
    its place."""
    box = box_for(**{name: value})
    call = {"name": name, "arguments": value}
    hurt = DAMAGES[damage](call, schema_of(value), Random(seed))
    assume(hurt is not None)

    verdicts = []
    if hurt.native is not None:
        verdicts.append(judged([RawCall(name=hurt.name, arguments=hurt.native, id="x")], box))
    if hurt.hermes is not None:
        verdicts.append(checked(extract_calls(hurt.hermes, box), box))

    for verdict in verdicts:
        if verdict.violations:
            assert verdict.calls == ()
            assert any(violation.path.startswith(hurt.place) for violation in verdict.violations)
        else:
            assert [(c.name, exact(json.loads(c.arguments))) for c in verdict.calls] == [(name, exact(value))]
            assert verdict.repairs or damage in ("missing tag", "double encoding") or not value


@laws
@given(before=st.text(max_size=60), data=json_values, after=st.text(max_size=60), fenced=st.booleans())
def test_prose_stays_prose(before, data, after, fenced):
    """A text that names no declared tool and holds no mark has no call in it, and leaves as it came."""
    inner = json.dumps(data)
    text = before + (f"```json\n{inner}\n```" if fenced else inner) + after
    assume(not any(mark in text for mark in ("tool_call", "TOOL_", "think>")))
    box = made([tool("frobnicate_all", {})])

    found = extract_calls(text, box)

    assert found.calls == ()
    assert found.malformed == ()
    assert found.text == text


@laws
@given(fields=st.dictionaries(st.sampled_from(["name", "age", "type", "id", "city"]), scalars, min_size=1))
def test_data_with_a_declared_name_is_no_call_without_a_calls_keys(fields):
    """An object whose `name` is a tool's is still data, as long as no key of it holds arguments."""
    text = f"The record is {json.dumps({**fields, 'name': 'get_weather'})}, as I said."
    box = made([tool("get_weather", {"type": "object", "properties": {"place": {"type": "string"}}})])
    assert extract_calls(text, box).calls == ()
    assert extract_calls(text, box).text == text


@settings(laws, max_examples=400)
@given(text=nearly_calls)
def test_extraction_is_total_and_invents_nothing(text):
    """Any text gives an answer; a call's name and every string in it were in the text; what is delivered
    is valid. Prose is kept to the letter, but for a thought at its end in which nothing stands."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    box = made([tool("get_weather", schema)])

    found = extract_calls(text, box)
    verdict = checked(found, box)

    for call in found.calls:
        assert call.name in text
    for call in verdict.calls:
        assert box.tools[0].validator.is_valid(json.loads(call.arguments))
        assert call.name == "get_weather"
    assert len(found.text) <= len(text)
    marked = MARK.search(text) or REASONING_CLOSE.search(text)
    if not found.calls and not found.malformed and not found.reasoning and not found.dropped and not marked:
        thoughtless = EMPTY_THOUGHT.sub("", text)
        assert found.text == text or found.text.strip() == thoughtless.strip()


@settings(laws, max_examples=200)
@given(text=nearly_calls)
def test_nothing_that_looks_like_a_call_is_dropped_in_silence(text):
    """An opened envelope with a declared name in it is a call or malformed, whatever follows."""
    box = made([tool("get_weather", {})])
    assume("</think>" not in text)
    found = extract_calls('<tool_call>{"name": "get_weather", "arguments": ' + text, box)
    assert found.calls or found.malformed


@laws
@given(name=names, value=arguments, kind=st.sampled_from(sorted(JSON)))
def test_checking_is_idempotent(name, value, kind):
    """What was delivered once is delivered again without a repair, with the same ids."""
    box = box_for(**{name: value})
    once = checked(extract_calls(JSON[kind](name, value), box), box)
    again = judged([RawCall(name=c.name, arguments=c.arguments, id=c.id) for c in once.calls], box)
    assert again.calls == once.calls
    assert again.repairs == ()


@laws
@given(value=json_values)
def test_a_value_is_read_as_it_was_written(value):
    """JSON and the literals of Python give the same value back, to the type. Where Python writes a string as JSON
    would, with an escape that JSON lacks, single quotes elsewhere say whose it is."""
    assert exact(read(dump(value)).value) == exact(value)
    assert exact(read(repr(value)).value) == exact(value) or LIKE_JSON.search(repr(value))
    assert exact(read(repr(["", value])).value) == exact(["", value])


@settings(laws, max_examples=300)
@given(text=nearly_calls | st.text(max_size=40) | call_values.strings)
def test_reading_is_total(text):
    """Any text is read or is `Unreadable`, and what is read can be written."""
    try:
        value = read(text)
    except Unreadable:
        return
    assert exact(json.loads(dump(value.value))) == exact(value.value)


@settings(laws, max_examples=200)
@given(schema=schemas, value=arguments)
def test_any_schema_is_compiled_or_refused(schema, value):
    """A client's schema makes a tool, or `BadTools` with a place; arguments are then judged."""
    box = build_toolbox([tool("q7", schema)])
    if isinstance(box, BadTools):
        assert box.path.startswith("/tools/0/function/parameters")
    else:
        verdict = judged([RawCall(name="q7", arguments=json.dumps(value))], box)
        assert bool(verdict.calls) != bool(verdict.violations)


@laws
@given(
    given_ids=st.lists(st.none() | st.sampled_from(["a", "b", "call_0", "", "bad id"]), max_size=8),
    used=st.sets(st.sampled_from(["a", "n0", "n1"])),
)
def test_ids_are_unique_in_the_conversation(given_ids, used):
    """Each of equal calls stays. No id is given twice, none was used before, a free one of the model's own is kept, and
    the rest are repaired on record."""
    box = made([tool("q7", {})])
    raw = [RawCall(name="q7", arguments="{}", id=id) for id in given_ids]

    verdict = judged(raw, box, new_id=lambda n: f"n{n}", used_ids=used)

    ids = [call.id for call in verdict.calls]
    assert len(set(ids)) == len(ids) == len(given_ids)
    assert not used & set(ids)
    for i, id in enumerate(given_ids):
        if id in ("a", "b", "call_0") and id not in used and id not in given_ids[:i]:
            assert ids[i] == id


@laws
@given(count=st.integers(0, 300), size=st.integers(1, 4000))
def test_the_corrective_message_is_bounded(count, size):
    """However much went wrong and however many tools there are, the message fits, and says what it must."""
    box = made([tool(f"tool_{i}", {"properties": {"x" * (size % 50 + 1): {"type": "string"}}}) for i in range(count)])
    raw = [RawCall(name="n" * size, arguments="{" * size) for _ in range(count + 1)]
    message = tools.corrective_message(judged(raw, box).violations, box)
    assert len(message) <= 6_100
    assert message.startswith("Your previous response contained an invalid tool call. The error was: ")
    assert "You must respond with valid JSON matching the tool schema exactly. Available tools: " in message


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_model_writes_is_what_the_client_gets(seed, monkeypatch):
    """Law: in every format, whole and streamed, a value arrives in each dialect as it was, or its format can't say it:
    then the call is refused, or its repair says what was changed."""
    monkeypatch.setattr(renderings, "SPELLING", renderings.SPELLING)
    tally = Tally()
    for _ in run(seed, 0, 1, 3_000, tally):
        assert not tally.failures, (
            f"python -m tests.values_fuzz --seed {seed} --only {max(tally.failures)}: {tally.failures}"
        )


def test_every_reason_names_a_format_that_is_tried():
    """Law: what formats can't say is said of formats that the fuzz writes."""
    assert all(cant.kinds and cant.kinds <= renderings.ALL.keys() for cant in CANT_SAY)
