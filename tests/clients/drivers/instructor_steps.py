"""Do the job with instructor, which has answers in a form and no tools: `python instructor_steps.py TASK`."""

# mypy: ignore-errors
from typing import Literal

import instructor
from job_tools import FUNCTIONS, TURNS_MAX, run
from openai import OpenAI
from pydantic import BaseModel


class Step(BaseModel):
    """The next step of the task."""

    action: Literal["read_file", "edit_file", "run_command", "answer"]
    path: str | None = None
    old: str | None = None
    new: str | None = None
    command: str | None = None
    answer: str | None = None


def main(task: str) -> str:
    """Ask for a step, do it, and show what came of it, until the step is an answer."""
    client, messages = instructor.from_openai(OpenAI()), [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        step, whole = client.chat.completions.create_with_completion(
            model="fast", messages=messages, response_model=Step
        )
        if step.action == "answer":
            return step.answer
        given = step.model_dump(exclude_none=True, exclude={"action"})
        message = whole.choices[0].message
        messages.append(message.model_dump())
        result = {"tool_call_id": message.tool_calls[0].id, "content": FUNCTIONS[step.action](**given)}
        messages.append({"role": "tool"} | result)
    return "no end"


run(main)
