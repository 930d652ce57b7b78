"""What a small model does at each step of an agent's day, and what a form of its prompt changes.

    python -m loadtests.agent_steps [--model small large] [--marks letters token]

Six errands, five tools, greedy, the tier alone. Four steps of each are asked for, with a past of one call:

    call      the first request: is the right tool called?
    words     behind the call's result, which is all that was wanted: is it told, and nothing called?
    next      behind an answer, the next request: is the right tool called?
    thanks    behind an answer, a thanks: are there words, and no call?
    nudged    behind the same call and result twice, and the nudge: is it told, and nothing called?

`--marks token`: marks that the model hasn't learned stay one token (docs/decisions/093-untrained-marks.md).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from deployments.models.sources import CODER_LARGE, CODER_SMALL
from deployments.tiers.mlx import loading
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.bfcl import collect_events
from reliability.loops import Kind, Loop, Stage, nudge
from reliability.tools import ToolBox, build_toolbox, extract_calls
from reliability.types import CallDelta, ChatRequest, Text

MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
STEPS = ("call", "words", "next", "thanks", "nudged")
ASK_S = 900.0
TOKENS_MAX = 80
SYSTEM = (
    "You are an agent that helps users with software tasks. Use the tools to do what is asked. Working directory: /w"
)


def _declare(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": words} for key, words in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _declare("read", "Read a file from the local filesystem.", filePath="The absolute path to the file"),
    _declare("bash", "Run a shell command and return its output.", command="The command"),
    _declare("edit", "Replace text in a file.", filePath="Its path", oldString="The old text", newString="The new one"),
    _declare("get_weather", "Get the current weather of a city.", city="The city"),
    _declare("search_web", "Search the web.", query="The query"),
)


class Errand(NamedTuple):
    """A request, its call, what the tool gives, the word of it that the answer must have; and the next request, with
    the tool and the word that its call must have."""

    asked: str
    tool: str
    arguments: Mapping[str, str]
    result: str
    told: str
    asked_next: str
    tool_next: str
    word_next: str


ERRANDS = (
    Errand(
        asked="Read the file notes.txt and say what the owner's name is.",
        tool="read",
        arguments={"filePath": "/w/notes.txt"},
        result="1: Entry 0 is fine.\n2: The owner's name is Mira-041.\n3: Entry 1 is fine.",
        told="Mira-041",
        asked_next="Now read todo.txt and tell me the first item.",
        tool_next="read",
        word_next="todo.txt",
    ),
    Errand(
        asked="How is the weather in Bern?",
        tool="get_weather",
        arguments={"city": "Bern"},
        result='{"city": "Bern", "temperature_c": 7, "sky": "rain"}',
        told="7",
        asked_next="And in Oslo?",
        tool_next="get_weather",
        word_next="Oslo",
    ),
    Errand(
        asked="How many lines does /w/a.log have?",
        tool="bash",
        arguments={"command": "wc -l /w/a.log"},
        result="214 /w/a.log",
        told="214",
        asked_next="And /w/b.log?",
        tool_next="bash",
        word_next="b.log",
    ),
    Errand(
        asked="In /w/conf.ini replace 'debug=true' by 'debug=false'.",
        tool="edit",
        arguments={"filePath": "/w/conf.ini", "oldString": "debug=true", "newString": "debug=false"},
        result="Edit applied successfully.",
        told="",
        asked_next="Now read /w/conf.ini to check it.",
        tool_next="read",
        word_next="conf.ini",
    ),
    Errand(
        asked="Search the web for the release date of Python 3.13.",
        tool="search_web",
        arguments={"query": "Python 3.13 release date"},
        result="Python 3.13 was released on October 7, 2024.",
        told="October 7",
        asked_next="Search for that of Rust 1.80 too.",
        tool_next="search_web",
        word_next="1.80",
    ),
    Errand(
        asked="Which files are in /w?",
        tool="bash",
        arguments={"command": "ls /w"},
        result="a.log\nb.log\nconf.ini\nnotes.txt",
        told="conf.ini",
        asked_next="Run the tests with pytest.",
        tool_next="bash",
        word_next="pytest",
    ),
)


class Answer(NamedTuple):
    """What the model wrote, and the calls in it: each a name and its arguments as JSON."""

    text: str
    calls: Sequence[tuple[str, str]]


async def ask(tier: MlxTier, box: ToolBox, errand: Errand, *behind: Mapping[str, Any]) -> Answer:
    """Ask what comes behind the request, and what else is given."""
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": errand.asked}, *behind)
    fields: dict[str, Any] = {"max_tokens": TOKENS_MAX, "timeout_s": ASK_S, "temperature": 0.0}
    request = ChatRequest(request_id="r", session_id="s", messages=messages, tools=TOOLS, **fields)
    events = await collect_events(tier, request)
    text = "".join(event.text for event in events if isinstance(event, Text))
    calls = [(event.name or "", event.arguments) for event in events if isinstance(event, CallDelta)]
    read = extract_calls(text, box).calls
    return Answer(text, [*calls, *((call.name, json.dumps(call.arguments)) for call in read)])


async def judge_errand(tier: MlxTier, box: ToolBox, errand: Errand) -> dict[str, tuple[bool, Answer]]:
    """Ask for each step of an errand; return whether it is right, and the answer."""
    function = {"name": errand.tool, "arguments": json.dumps(errand.arguments)}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": "c", "content": errand.result}
    told = {"role": "assistant", "content": f"Done: {errand.result.splitlines()[0]}"}
    loop = Loop(
        kind=Kind.CALLS, stage=Stage.WARN, repetitions=3, tool=errand.tool, evidence=errand.result, key="3f2a9c"
    )
    behind: dict[str, tuple[Mapping[str, Any], ...]] = {
        "call": (),
        "words": (call, result),
        "next": (call, result, told, {"role": "user", "content": errand.asked_next}),
        "thanks": (call, result, told, {"role": "user", "content": "Thank you, that is all."}),
        "nudged": (call, result, call, result, {"role": "user", "content": nudge(loop)}),
    }
    answers = {step: await ask(tier, box, errand, *messages) for step, messages in behind.items()}
    return {step: (_is_right(step, errand, answer), answer) for step, answer in answers.items()}


def _is_right(step: str, errand: Errand, answer: Answer) -> bool:
    if step in ("call", "next"):
        tool, word = (errand.tool, "") if step == "call" else (errand.tool_next, errand.word_next)
        return bool(answer.calls) and answer.calls[0][0] == tool and word in answer.calls[0][1]
    return not answer.calls and bool(answer.text.strip()) and (step == "thanks" or errand.told in answer.text)


async def measure(model: str, marks: str) -> None:
    """Print the answers of a model, and its line of the table."""
    tier = MlxTier(name=model, model=MODELS[model], blas_threads=2)
    await tier.wait_for_load(ASK_S)
    box = build_toolbox([dict(tool) for tool in TOOLS])
    assert isinstance(box, ToolBox)
    counts = Counter[str]()
    for errand in ERRANDS:
        for step, (right, answer) in (await judge_errand(tier, box, errand)).items():
            counts[step] += right
            wrong = "" if right else f"  {answer.text[:80]!r} {list(answer.calls[:2])}"
            print(f"{'right' if right else 'wrong'}  {step:6}  {errand.asked[:40]}{wrong}", flush=True)
    await tier.close()
    print(f"| model | marks | {' | '.join(STEPS)} |")
    print(f"| {model} | {marks} | {' | '.join(f'{counts[step]} of {len(ERRANDS)}' for step in STEPS)} |", flush=True)


def main() -> None:
    """Measure each model with each kind of marks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--marks", nargs="+", choices=("letters", "token"), default=["letters"])
    args = parser.parse_args()
    for model in args.model:
        for marks in args.marks:
            stay = patch.object(loading, "spell_untrained_marks", return_value=())
            with stay if marks == "token" else nullcontext():
                asyncio.run(measure(model, marks))


if __name__ == "__main__":
    main()
