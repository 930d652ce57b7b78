"""Do the job with the openai package over chat completions: `python openai_chat.py TASK [stream]`."""

# mypy: ignore-errors
import os

from job_tools import SCHEMAS, chat, run
from openai import OpenAI

TOOLS = [{"type": "function", "function": schema} for schema in SCHEMAS]
MODEL = os.environ.get("OPENAI_MODEL", "fast")


def main(task: str, stream: str = "") -> str:
    client = OpenAI()
    return chat(task, lambda messages: ask(client, messages, bool(stream)))


def ask(client, messages, stream):
    if not stream:
        return client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
    with client.chat.completions.stream(
        model=MODEL, messages=messages, tools=TOOLS, stream_options={"include_usage": True}
    ) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message


run(main)
