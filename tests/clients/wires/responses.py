"""OpenAI's Responses, as delivered. A stream ends with the whole response, which is what clients go by."""

from typing import Any

from tests.clients.wires import Answer, Call, Required, read_events, read_json

ENDS = ("response.completed", "response.incomplete", "response.failed")


def read_tools(body: dict[str, Any]) -> Required:
    """Read which tools a request declares; those of a namespace by their own names."""
    found: Required = {}
    for tool in body.get("tools") or []:
        if tool.get("type") == "function":
            found[tool["name"]] = list((tool.get("parameters") or {}).get("required") or [])
        elif tool.get("type") == "namespace":
            found |= read_tools(tool)
        elif tool.get("type") == "custom":
            found[tool["name"]] = None
    return found


def read_answer(raw: bytes) -> Answer:
    whole = read_json(raw)
    if whole is not None:
        return _read_whole(whole)
    answer, items, text = Answer(), [], ""
    for event in read_events(raw):
        kind = event.get("type", "")
        if kind == "response.output_text.delta":
            text += event["delta"]
        elif kind == "response.output_item.done":
            items.append(event["item"])
        elif kind in ENDS:
            answer = _read_whole(event["response"])
            answer.report = event.get("mlx_stack") or answer.report
        elif kind == "error":
            answer.error = event.get("error") or {key: event.get(key) for key in ("code", "message", "param")}
    calls = _read_calls(items)
    answer.text, answer.calls = text or answer.text, calls or answer.calls
    return answer


def _read_whole(whole: dict[str, Any]) -> Answer:
    output = whole.get("output") or []
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or []]
    usage = whole.get("usage")
    return Answer(
        text="".join(part.get("text") or "" for part in parts),
        calls=_read_calls(output),
        usage=(usage["input_tokens"], usage["output_tokens"]) if usage else None,
        error=whole.get("error"),
        report=whole.get("mlx_stack") or {},
        ended=whole.get("status") in ("completed", "incomplete", "failed"),
    )


def _read_calls(items: list[dict[str, Any]]) -> list[Call]:
    calls = []
    for item in items:
        if item.get("type") == "function_call":
            calls.append(Call(item["name"], item["arguments"]))
        elif item.get("type") == "custom_tool_call":
            calls.append(Call(item["name"], item["input"], free=True))
    return calls
