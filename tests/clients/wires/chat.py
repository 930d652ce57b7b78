"""OpenAI's chat completions, as delivered."""

from typing import Any

from tests.clients.wires import Answer, Call, Required, read_events, read_json


def read_tools(body: dict[str, Any]) -> Required:
    functions = [tool.get("function") or {} for tool in body.get("tools") or []]
    return {one.get("name", ""): list((one.get("parameters") or {}).get("required") or []) for one in functions}


def read_answer(raw: bytes) -> Answer:
    whole = read_json(raw)
    if whole is not None:
        message = ((whole.get("choices") or [{}])[0]).get("message") or {}
        calls = [_read_call(one["function"]) for one in message.get("tool_calls") or []]
        text = message.get("content") or ""
        return Answer(text, calls, _read_usage(whole), whole.get("error"), whole.get("mlx_stack") or {}, ended=True)
    return _read_stream(raw)


def _read_stream(raw: bytes) -> Answer:
    answer, calls = Answer(ended=b"data: [DONE]" in raw), {}
    for chunk in read_events(raw):
        answer.error = chunk.get("error") or answer.error
        answer.report = chunk.get("mlx_stack") or answer.report
        answer.usage = _read_usage(chunk) or answer.usage
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            answer.text += delta.get("content") or ""
            for part in delta.get("tool_calls") or []:
                call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
                for key in call:
                    call[key] += (part.get("function") or {}).get(key) or ""
    answer.calls = [_read_call(calls[index]) for index in sorted(calls)]
    return answer


def _read_call(function: dict[str, Any]) -> Call:
    return Call(function["name"], function["arguments"])


def _read_usage(whole: dict[str, Any]) -> tuple[int, int] | None:
    usage = whole.get("usage")
    return (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None
