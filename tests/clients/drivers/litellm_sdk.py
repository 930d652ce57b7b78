"""Do the job with LiteLLM's own functions: `python litellm_sdk.py TASK`."""

# mypy: ignore-errors
import litellm
from job_tools import SCHEMAS, TURNS_MAX, call, run

TOOLS = [{"type": "function", "function": schema} for schema in SCHEMAS]


def main(task: str) -> str:
    """Work until there is an answer without a call."""
    messages = [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        message = litellm.completion(model="openai/fast", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for one in message.tool_calls:
            result = call(one.function.name, one.function.arguments)
            messages.append({"role": "tool", "tool_call_id": one.id, "content": result})
    return "no end"


run(main)
