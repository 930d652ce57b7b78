"""Do the job with LiteLLM's own functions: `python litellm_sdk.py TASK`."""

# mypy: ignore-errors
import litellm
from job_tools import SCHEMAS, chat, run

TOOLS = [{"type": "function", "function": schema} for schema in SCHEMAS]


def main(task: str) -> str:
    def ask(messages):
        return litellm.completion(model="openai/fast", messages=messages, tools=TOOLS).choices[0].message

    return chat(task, ask)


run(main)
