"""What a hostile or merely unlucky client sends, and what a hostile or broken model answers: the cases of the fuzz.

Each kind is a function of dice: the same seed gives the same case. A case is the body of one request, at most
`BODY_BYTES_MAX` long, and what the upstream answers. The body itself says which answer (`ANSWER_MARK` and a kind
in the last user message, with a seed), so that one server process can play all of them.

Nothing here knows what the server does with it; what is odd is only the size and the shape.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

BODY_BYTES_MAX = 10 * 1024 * 1024
ANSWER_MARK = "answer-kind:"
#: Leaves space for what stands around a text that fills a body.
FILL_BYTES = BODY_BYTES_MAX - 4096
MODEL = "hostile"
LONG_ARGUMENTS = json.dumps({"path": "a", "edits": [{"old": f"é{n}", "new": n * 1.0} for n in range(5_500)]})

Body = dict[str, Any]
Kind = Callable[[random.Random], Body]


def encode_body(body: Body) -> bytes:
    """Encode the body of a case. What is over the bound is no case: it would only meet the bound."""
    asked = {"model": MODEL, "max_tokens": 16_384} | body
    raw = json.dumps(asked, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(raw) > BODY_BYTES_MAX:
        raise ValueError(f"a body of {len(raw)} bytes is over {BODY_BYTES_MAX}")
    return raw


def user(text: Any) -> Body:
    """Build a user message."""
    return {"role": "user", "content": text}


def tool(name: str = "read_file", parameters: Body | None = None) -> Body:
    """Build one declared tool."""
    plain = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters or plain}}


def call(number: int, name: str = "read_file", arguments: str = '{"path":"a.py"}') -> Body:
    """Build one call of the history."""
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def steps(results: list[str], arguments: str = '{"path":"a.py"}', answer: str = "the same call") -> Body:
    """Build a history in which one call is made again and again, with these results; the model makes it once more."""
    messages: list[Body] = [user(f"{ANSWER_MARK}{answer}")]
    for number, result in enumerate(results):
        messages.append({"role": "assistant", "content": None, "tool_calls": [call(number, arguments=arguments)]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    return {"messages": messages, "tools": [tool()]}


def lines(dice: random.Random, size: int) -> str:
    """Make text in lines, of about so many bytes."""
    words = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    line = " ".join(dice.choice(words) for _ in range(12))
    rows = [f"{number:06d} {line[number % 40 :]}" for number in range(size // (len(line) - 13) + 1)]
    return "\n".join(rows)[:size]


# --- messages -----------------------------------------------------------------------------------------------


def _build_huge_message(dice: random.Random) -> Body:
    return {"messages": [user(lines(dice, FILL_BYTES - 400_000))]}


def _build_huge_system(dice: random.Random) -> Body:
    text = lines(dice, FILL_BYTES // 2 - 200_000)
    return {"messages": [{"role": "system", "content": text}, user(text)]}


def _build_odd_unicode(dice: random.Random) -> Body:
    piece = "".join(dice.choice("é漢\U0001f600\u202e\u0301\ufeffｱ\u200b") for _ in range(1000))
    return {"messages": [user(piece * (FILL_BYTES // len(piece.encode())))]}


def _build_many_messages(dice: random.Random) -> Body:
    roles = ("user", "assistant")
    text = lines(dice, 900)
    return {"messages": [{"role": roles[i % 2], "content": f"{i} {text}"} for i in range(9_999)] + [user("go")]}


def _build_tiny_parts(_: random.Random) -> Body:
    return {"messages": [user([{"type": "text", "text": "x"}] * 300_000)]}


def _build_odd_parts(_: random.Random) -> Body:
    parts = [{"type": "image_url", "image_url": {"url": "data:," + "x" * 20}}] * 100_000
    results = [{"type": "tool_result", "tool_use_id": "x", "content": "y"}] * 20_000
    return {"messages": [user(parts), {"role": "assistant", "content": "ok"}, user(results)]}


def _build_image(dice: random.Random) -> Body:
    data = "".join(dice.choice("ABCDEFGHabcdefgh0123+/") for _ in range(10_000)) * (FILL_BYTES // 10_000 - 1)
    return {"messages": [user([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])]}


def _build_deep(_: random.Random) -> Body:
    value: Any = "x"
    for _n in range(90):
        value = {"k": value}
    return {"messages": [user("hi")], "metadata": {str(i): value for i in range(9_000)}}


def _build_numbers(_: random.Random) -> Body:
    return {"messages": [user("hi")], "vector": [0.1, 1, 2.25] * 750_000}


def _build_many_keys(_: random.Random) -> Body:
    return {"messages": [user("hi")], "metadata": {f"key{i}": i for i in range(500_000)}}


def _build_top_keys(_: random.Random) -> Body:
    return {"messages": [user("hi")]} | {f"key{i}": i for i in range(500_000)}


def _build_message_keys(_: random.Random) -> Body:
    return {"messages": [user("hi") | {f"key{i}": i for i in range(500_000)}]}


def _build_reminders(_: random.Random) -> Body:
    piece = "<system-reminder>x</system-reminder>\n"
    return {"messages": [{"role": "assistant", "content": "a"}, user(piece * (FILL_BYTES // len(piece) - 9_000))]}


def _build_go_ons(_: random.Random) -> Body:
    return {"messages": [user(" " * 50_000 + "continue" + "." * 50_000)] * 95}


def _build_stops(_: random.Random) -> Body:
    return {"messages": [user("hi")], "stop": ["a" * 600_000] * 16}


# --- histories ----------------------------------------------------------------------------------------------


def _build_stamped(dice: random.Random) -> Body:
    body = lines(dice, 81_000)
    return steps([f"at 2026-11-23T06:{i // 60:02d}:{i % 60:02d}Z\n{body}" for i in range(42)])


def _build_stamped_lines(dice: random.Random) -> Body:
    def result(i: int) -> str:
        rows = [f"2026-11-23T06:{i:02d}:{n % 60:02d}Z took {i}.{n % 10}s {n * 7919 % 10_007}" for n in range(4_000)]
        return "\n".join(rows)

    return steps([result(i) for i in range(42)])


def _build_stamped_json(dice: random.Random) -> Body:
    def result(i: int) -> str:
        rows = [{"name": f"n{n}", "duration_ms": i * n, "value": f"took {i}.{n} s"} for n in range(2_000)]
        return json.dumps({"requestId": f"r{i}", "rows": rows})

    return steps([result(i) for i in range(42)])


def _build_one_line(dice: random.Random) -> Body:
    body = lines(dice, 200_000).replace("\n", " ")
    return steps([f"{body} pid {i} {body[:40]}" for i in range(42)])


def _build_near(dice: random.Random) -> Body:
    body = lines(dice, 80_000)
    noise = ["".join(dice.choice("abcdefghij") for _ in range(300)) for _ in range(42)]
    return steps([body[:1000] + word + body + word[::-1] + body[-1000:] for word in noise])


def _build_flowing(_: random.Random) -> Body:
    body = "same line\n" * 20_000
    return steps([body[:-i] + "x" for i in range(1, 43)])


def _build_errors(dice: random.Random) -> Body:
    body = lines(dice, 200_000)
    return steps([f"Error: cannot\n{body}\nfailed at 06:00:{i:02d}" for i in range(42)])


def _build_json_errors(dice: random.Random) -> Body:
    inner = [{"line": n, "text": "x" * 20} for n in range(3_000)]
    return steps([json.dumps({"error": f"failed with {i}", "log": inner}) for i in range(42)])


def _build_long_arguments(_: random.Random) -> Body:
    return steps(["ok"] * 40, LONG_ARGUMENTS, "the same long call")


def _build_deep_results(_: random.Random) -> Body:
    deep = "[" * 50_000
    return steps([deep + str(i) for i in range(42)])


def _build_parallel(_: random.Random) -> Body:
    calls = [call(n) for n in range(24_000)]
    results = [{"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"} for n in range(200)]
    return {"messages": [user("hi"), {"role": "assistant", "content": None, "tool_calls": calls}, *results]}


def _build_parallel_batches(_: random.Random) -> Body:
    messages: list[Body] = [user("hi")]
    for batch in range(5):
        calls = [call(batch * 1000 + n, arguments=json.dumps({"path": n})) for n in range(1_000)]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "x"} for c in calls]
    return {"messages": messages[:-1]}


def _build_one_id(_: random.Random) -> Body:
    calls = [call(0) for _n in range(12_000)]
    results = [{"type": "tool_result", "tool_use_id": "call_0", "content": "abc"} for _n in range(20_000)]
    return {"messages": [user("hi"), {"role": "assistant", "content": None, "tool_calls": calls}, user(results)]}


def _build_growing_result(_: random.Random) -> Body:
    results = [{"type": "tool_result", "tool_use_id": "call_0", "content": "abc" * 20} for _n in range(60_000)]
    return {"messages": [user("hi"), {"role": "assistant", "content": None, "tool_calls": [call(0)]}, user(results)]}


def _build_texts(dice: random.Random) -> Body:
    text = lines(dice, 90_000)
    pairs = [({"role": "assistant", "content": f"{text}{i}"}, user("continue")) for i in range(48)]
    return {"messages": [user("hi"), *(m for pair in pairs for m in pair)]}


BODIES: dict[str, Kind] = {
    "huge message": _build_huge_message,
    "huge system prompt": _build_huge_system,
    "odd unicode": _build_odd_unicode,
    "10,000 messages": _build_many_messages,
    "300,000 parts": _build_tiny_parts,
    "odd parts": _build_odd_parts,
    "image": _build_image,
    "deep": _build_deep,
    "numbers": _build_numbers,
    "500,000 keys": _build_many_keys,
    "500,000 keys of the body": _build_top_keys,
    "500,000 keys of a message": _build_message_keys,
    "reminders": _build_reminders,
    "go on": _build_go_ons,
    "stops": _build_stops,
    "42 results, one stamp each": _build_stamped,
    "42 results, stamps in all lines": _build_stamped_lines,
    "42 results of JSON": _build_stamped_json,
    "42 results of one line": _build_one_line,
    "42 results, nearly equal": _build_near,
    "42 results that flow": _build_flowing,
    "42 errors": _build_errors,
    "42 errors in JSON": _build_json_errors,
    "long arguments": _build_long_arguments,
    "deep results": _build_deep_results,
    "24,000 parallel calls": _build_parallel,
    "batches of 1,000 calls": _build_parallel_batches,
    "12,000 calls of one id": _build_one_id,
    "60,000 results of one call": _build_growing_result,
    "48 texts": _build_texts,
}


# --- schemas ------------------------------------------------------------------------------------------------


def _build_schema_case(parameters: Body, answer: str = "a call") -> Body:
    return {"messages": [user(f"{ANSWER_MARK}{answer}")], "tools": [tool(parameters=parameters)]}


def _build_patterns(dice: random.Random) -> Body:
    number = dice.randrange(10**6)
    of = {f"p{i}": {"type": "string", "pattern": f"({'|'.join('a' * 20)}|b{number}{i})+"} for i in range(5_000)}
    return _build_schema_case({"type": "object", "properties": of})


def _build_slow_pattern(dice: random.Random) -> Body:
    evil = dice.choice(["(a{1,2}){50}b", "(a?){30}a{30}", r"(\w{1,10}\s?){1,20}$", "^([a-z]{1,10} ?){1,20}$"])
    return _build_schema_case({"type": "object", "properties": {"path": {"type": "string", "pattern": evil}}}, "a's")


def _build_properties(dice: random.Random) -> Body:
    number = dice.randrange(10**6)
    return _build_schema_case(
        {"type": "object", "properties": {f"p{number}{i}": {"type": "string"} for i in range(9_000)}}
    )


def _build_many_tools(dice: random.Random) -> Body:
    number = dice.randrange(10**6)
    some = {"type": "object", "properties": {f"p{number}": {"enum": list(range(20))}}}
    return {"messages": [user("hi")], "tools": [tool(f"t{number}_{i}", some | {"title": str(i)}) for i in range(512)]}


def _build_recursive(dice: random.Random) -> Body:
    node: Body = {"anyOf": [{"not": {"$ref": "#/$defs/n"}}, {"properties": {"a": {"$ref": "#/$defs/n"}}}]}
    return _build_schema_case(
        {"type": "object", "$defs": {"n": node}, "properties": {"a": {"$ref": "#/$defs/n"}}}, "nested"
    )


def _build_unique(_: random.Random) -> Body:
    return _build_schema_case(
        {"type": "object", "properties": {"items": {"type": "array", "uniqueItems": True}}}, "objects"
    )


def _build_enum(dice: random.Random) -> Body:
    words = [f"word{dice.randrange(10**9)}" for _ in range(3_000)]
    items = {"type": "array", "items": {"enum": words}}
    return _build_schema_case({"type": "object", "properties": {"items": items}}, "words")


def _build_format(dice: random.Random) -> Body:
    number = dice.randrange(10**6)
    schema = {"type": "object", "properties": {f"p{number}{i}": {"pattern": f"(a|{i})+"} for i in range(5_000)}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": [user("hi")], "response_format": wanted}


SCHEMAS: dict[str, Kind] = {
    "5,000 patterns": _build_patterns,
    "a slow pattern": _build_slow_pattern,
    "9,000 properties": _build_properties,
    "512 tools": _build_many_tools,
    "recursive unions": _build_recursive,
    "uniqueItems": _build_unique,
    "a long enum": _build_enum,
    "response_format": _build_format,
}
