"""Agents that are made up, and send what real ones were seen to send: each run is a script of questions and answers,
and a habit of what its client does to the history before it sends it again.

A `MadeRun` keeps what was really said, and `request` shows of it what its client would send.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support import shrunk_histories

Message = dict[str, Any]
Habit = Callable[[list[Message], "MadeRun"], list[Message]]

PATHS = ["README.md", "src/app.py", "tests/test_app.py", "setup.cfg"]
MARK = "</code>"
MARKED = ("all", "dated system", "cleared results")
TASKS = ["Fix the failing test.", "Add a flag --dry-run.", "Rename the module.", "Write the changelog."]


@dataclass
class MadeRun:
    """One run of an agent. `said` is the history as it truly was; `head` what its client puts before it."""

    number: int
    dice: random.Random
    shape: str
    habit: str
    head: list[Message]
    said: list[Message]
    turns: int
    twin: int | None = None
    answers: int = 0
    name: str = ""

    @property
    def begun(self) -> bool:
        """Whether it has an answer."""
        return self.answers > 0

    def request(self) -> list[Message]:
        """What its client sends now."""
        return [dict(message) for message in HABITS[self.habit]([*self.head, *self.said], self)]

    def take(self, answer: Message) -> None:
        """Take an answer, and do what it asks for."""
        self.answers += 1
        self.said.append(_mark(_reformat(answer, self.dice), self))
        for call in answer.get("tool_calls") or ():
            content = f"{self.said_by_tool()} of {call['function']['arguments']}"
            self.said.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not answer.get("tool_calls"):
            self.said.append({"role": "user", "content": self.next_words()})

    def said_by_tool(self) -> str:
        """A result: some are the same for all runs, most are not."""
        return "ok" if self.dice.random() < 0.3 else f"contents {self.number}.{self.answers}"

    def next_words(self) -> str:
        """What comes back to a text: an observation, or the user."""
        if self.shape == "text":
            return f"Observation:\n{self.said_by_tool()}"
        return self.dice.choice(["go on", f"Now do part {self.number}.{self.answers}.", "And the tests?"])


def _reformat(answer: Message, dice: random.Random) -> Message:
    """An answer as a client keeps it: stripped, null content, arguments written anew, no reasoning."""
    kept: Message = {"role": "assistant", "content": answer.get("content")}
    if answer.get("tool_calls"):
        kept["content"] = dice.choice([None, "", answer.get("content")])
        kept["tool_calls"] = [_rewrite(call, dice) for call in answer["tool_calls"]]
    elif isinstance(kept["content"], str):
        text = kept["content"].rpartition("</think>")[2] if dice.random() < 0.5 else kept["content"]
        kept["content"] = dice.choice([text, text.strip(), [{"type": "text", "text": text.strip()}]])
    return kept


def _mark(kept: Message, run: MadeRun) -> Message:
    """Some clients add a mark of their own to each text."""
    if run.shape == "text" and run.habit in MARKED and isinstance(kept["content"], str) and run.number % 2:
        return {**kept, "content": f"{kept['content'].strip()}\n{MARK}"}
    return kept


def _rewrite(call: Message, dice: random.Random) -> Message:
    arguments = json.loads(call["function"]["arguments"])
    text = json.dumps(arguments, indent=dice.choice([None, 2]), sort_keys=dice.random() < 0.5)
    return {**call, "function": {"name": call["function"]["name"], "arguments": text}}


def _drop_ids(sent: list[Message], _: MadeRun) -> list[Message]:
    out = []
    for number, message in enumerate(sent):
        fresh = {**message}
        if message.get("tool_calls"):
            fresh["tool_calls"] = [{**call, "id": f"call_{number}"} for call in message["tool_calls"]]
        if "tool_call_id" in message:
            fresh["tool_call_id"] = f"call_{number}"
        out.append(fresh)
    return out


def _date_system(sent: list[Message], run: MadeRun) -> list[Message]:
    dated = [{**m, "content": f"{m['content']} It is 12:{run.answers:02}."} for m in sent if m["role"] == "system"]
    return [*dated, *(m for m in sent if m["role"] != "system")]


def _shrink(shape: str, *, task: bool = True) -> Habit:
    """As a client of `shrunk_histories` does it; without the `task` the system prompt alone stays before it."""
    show = shrunk_histories.SHAPES[shape]
    return lambda _, run: show([m for m in run.head if task or m["role"] == "system"], run.said, run.answers)


def _summarise_middle(sent: list[Message], run: MadeRun) -> list[Message]:
    body = sent[len(run.head) :]
    if len(body) < 9:
        return sent
    words = f"Summary of the work so far: {len(body)} messages about part {run.number}."
    return [*run.head, {"role": "user", "content": words}, *body[-5:]]


def _fold(sent: list[Message], run: MadeRun) -> list[Message]:
    """Each fifth answer is a summary that the model was asked for, and the history begins there."""
    if run.answers % 5 == 4:
        return [*sent, {"role": "user", "content": "Summarize the conversation so far."}]
    if run.answers and run.answers % 5 == 0 and len(run.said) > 3:
        summary = next(m["content"] for m in reversed(run.said) if m["role"] == "assistant")
        text = summary if isinstance(summary, str) else summary[0]["text"]
        words = f"This session is being continued from a previous conversation.\n{text}\nGo on."
        run.said = [{"role": "user", "content": words}]
    return [*run.head, *run.said]


def _fold_alone(_: list[Message], run: MadeRun) -> list[Message]:
    """Each fifth answer all of it becomes a summary that the client makes by itself."""
    if run.answers and run.answers % 5 == 0 and len(run.said) > 3:
        words = f"Summary of the work so far: part {run.number}.{run.answers} is done."
        run.said = [{"role": "user", "content": words}]
    return [*run.head, *run.said]


HABITS: dict[str, Habit] = {
    "all": lambda sent, _: sent,
    "no ids": _drop_ids,
    "dated system": _date_system,
    "cleared results": _shrink("keeps 2 results"),
    "last 2": _shrink("keeps the last 2", task=False),
    "last 3": _shrink("keeps the last 3"),
    "last 4": _shrink("keeps the last 4", task=False),
    "last 6": _shrink("keeps the last 6"),
    "summary": _summarise_middle,
    "folded": _fold,
    "folded by the client": _fold_alone,
}


def _say(*words: str) -> list[Message]:
    """The user and the model in turn."""
    return [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(words)]


def _system(words: str) -> list[Message]:
    return [{"role": "system", "content": words}]


AIDER = (
    "Change get_factorial() to use math.factorial",
    "To make this change we need to modify `mathweb/flask/app.py`.",
    "I switched to a new code base. Please don't consider the above files.",
    "Ok.",
    "Here are the files: app.py",
    "Ok, any changes I propose will be to those files.",
)
QWEN = (
    "This is the Qwen Code. We are setting up the context for our chat. Today's date is 24 November 2026.",
    "Got it. Thanks for the context!",
)
SHAPES: dict[str, Callable[[str], list[Message]]] = {
    "aider": lambda task: _system("Act as an expert software developer.") + _say(*AIDER, task),
    "qwen": lambda task: _system("You are Qwen Code.") + _say(*QWEN, task),
    "native": lambda task: _system("You are a coding agent.") + _say(task),
    "text": lambda task: _system("Answer with Thought and Code.") + _say(task),
    "bare": _say,
}


def make_run(number: int, dice: random.Random, twin: MadeRun | None = None) -> MadeRun:
    """Make a run; one that has a twin begins with the same messages."""
    if twin is None:
        shape, habit = dice.choice(list(SHAPES)), dice.choice(list(HABITS))
        head = SHAPES[shape](dice.choice(TASKS))
    else:
        shape, habit, head = twin.shape, twin.habit, [dict(message) for message in twin.head]
    own, turns = random.Random(dice.getrandbits(64)), dice.randint(3, 16)
    return MadeRun(number, own, shape, habit, head, [], turns, twin=None if twin is None else twin.number)


def make_answer(run: MadeRun, ticket: str) -> Message:
    """What the model says: a call with an id of ours, or a text. Many models open with the same words."""
    dice = run.dice
    opens = run.answers == 0 and dice.random() < 0.4
    if run.habit == "folded" and run.answers % 5 == 4:
        return {"role": "assistant", "content": f"Part {dice.getrandbits(32)} of the work is done, the rest is not."}
    if run.shape in ("aider", "text", "bare"):
        thought = "<think>Let me see.</think>\n" if dice.random() < 0.3 else ""
        if opens:
            return {"role": "assistant", "content": f"{thought}I will look at the repository first.\n"}
        return {"role": "assistant", "content": f"{thought}Step {dice.getrandbits(32)}: I edit {dice.choice(PATHS)}.\n"}
    path = PATHS[0] if opens else dice.choice(PATHS)
    call = {"name": "read_file", "arguments": json.dumps({"path": path, "limit": 10})}
    return {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": f"call_{ticket}", "type": "function", "function": call}],
    }
