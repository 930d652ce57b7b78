"""Do the job with the anthropic package: `python anthropic_messages.py TASK [stream]`."""

# mypy: ignore-errors
from anthropic import Anthropic
from job_tools import SCHEMAS, TURNS_MAX, call, run

TOOLS = [{"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in SCHEMAS]


def main(task: str, stream: str = "") -> str:
    client, messages = Anthropic(), [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        message = ask(client, messages, bool(stream))
        messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": call(one.name, one.input)} for one in calls
        ]
        messages.append({"role": "user", "content": results})
    return "no end"


def ask(client, messages, stream):
    asked = {"model": "fast", "max_tokens": 2048, "messages": messages, "tools": TOOLS}
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        return events.get_final_message()


run(main)
