"""The two models behind the server: a weak one and a good one, which know each client's tools and follow a script.

Of the job they read off the conversation how far it is: so many results of calls, so many steps. On the way the weak
model errs, in each of five ways once:

    step 0  reads the file      `written`   the call stands in the text
    step 1  counts its lines    `invented`  a tool that nobody declared, until it is asked again
    step 2  changes the file    `literals`  arguments in Python's spelling, with a comma too many
    step 3  shows it            `missing`   no argument at all, however often it is asked
    step 4  looks for `blue`    `loop`      for ever, nudged or not; the good model says that all is done

Three other plays: `loop` (both repeat a call for ever), `budget` (each answer costs as much as one can), `dead` (both
answer 500). A request that isn't for the job (a title, a summary) gets two words.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.moves import ANSWER, BLUE, FILE, RED, Move, Moves, fill
from tests.support.plays import SSE, Head, Play, Seen, Send, chunk, frame, status

SCENARIOS = ("job", "loop", "budget", "dead")
FAULTS = ("written", "invented", "literals", "missing", "loop")
OBSERVED = ("Observation", "The output of `wc")  # how results begin that are sent as texts
COUNT, SHOW, FIND, STUCK = f"wc -l {FILE}", f"cat {FILE}", f"grep -c blue {FILE}", f"grep -c red {FILE}"
# As many different looks as a budget lasts for, and more.
LOOKS = [f"wc -c {FILE}", f"wc -w {FILE}", "ls", f"head -n 1 {FILE}", f"tail -n 1 {FILE}", f"sort {FILE}", "uname"]
LOOKS += [f"grep -n red {FILE}", f"grep -n grey {FILE}", "echo one", "echo two", "echo three", "echo four", "echo five"]
DEAR = {"completion_tokens": 65_000, "completion_tokens_details": {"reasoning_tokens": 64_900}}
CHARS_PER_TOKEN = 4


@dataclass(slots=True)
class Players:
    """Both models in one run. `style`: `calls`, `code` (smolagents' CodeAgent) or `edits` (aider); `played`: which
    faults were."""

    scenario: str
    moves: Moves
    words: dict[str, str]
    style: str = "calls"
    played: set[str] = field(default_factory=set)
    asked: Counter[int] = field(default_factory=Counter)

    def play(self, seen: Seen, *, weak: bool) -> Play:
        """Answer as the weak model, or as the good one."""
        body = seen.body
        if self.scenario == "dead":
            return status(500)
        if not self._is_job(body):
            return self._say(seen, "Red and blue")
        if self.style == "edits":
            return self._say(seen, self._write_edit(body["messages"]))
        step = count_results(body["messages"])
        if self.scenario == "loop":
            return self._act(seen, self.moves.run, STUCK)
        if self.scenario == "budget":
            return self._act(seen, self.moves.run, LOOKS[step % len(LOOKS)])
        if weak and self.style == "calls":
            return self._err(seen, step)
        return self._do_step(seen, step, weak=weak)

    def _is_job(self, body: dict[str, Any]) -> bool:
        return FILE in json.dumps(body["messages"]) and (self.style != "calls" or bool(body.get("tools")))

    def _do_step(self, seen: Seen, step: int, *, weak: bool) -> Play:
        """Do a step of the job well; the weak model doesn't know when it is done."""
        if step == 0:
            return self._act(seen, self.moves.read)
        if step == 2:
            return self._act(seen, self.moves.edit)
        if step < 4 or weak:
            return self._act(seen, self.moves.run, {1: COUNT, 3: SHOW}.get(step, FIND))
        return self._act(seen, self.moves.end) if self.moves.end else self._say(seen, ANSWER)

    def _err(self, seen: Seen, step: int) -> Play:
        """Do a step of the job as the weak model does it."""
        fault = FAULTS[min(step, len(FAULTS) - 1)]
        first = self.asked[step] == 0
        self.asked[step] += 1
        self.played.add(fault)
        if fault == "written":
            call = self._choose(seen, self.moves.read)
            words = json.dumps({"name": call.tool, "arguments": call.arguments})
            return self._say(seen, f"I will look at it.\n<tool_call>\n{words}\n</tool_call>")
        if fault == "invented" and first:
            return self._say(seen, "", ("count_all_lines_of_it", json.dumps({"of": FILE})))
        if fault == "literals":
            call = self._choose(seen, self.moves.edit)
            return self._say(seen, "", (call.tool, f"{repr(call.arguments)[:-1]},}}"))
        if fault == "missing":
            return self._say(seen, "", (self._choose(seen, self.moves.run, SHOW).tool, "{}"))
        return self._do_step(seen, step, weak=True)

    def _act(self, seen: Seen, moves: Sequence[Move], command: str = "") -> Play:
        call = self._choose(seen, moves, command)
        if self.style == "code":
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            look = f"{call.tool}({arguments})"
            code = look if call.tool == "final_answer" else f"print({look})"
            return self._say(seen, f"Thought: I go on with the notes.\n<code>\n{code}\n</code>")
        return self._say(seen, "", (call.tool, json.dumps(call.arguments)))

    def _choose(self, seen: Seen, moves: Sequence[Move], command: str = "") -> Move:
        names = [tool["function"]["name"] for tool in seen.body.get("tools") or []]
        move = next((one for one in moves if one.tool in names), moves[0])
        return Move(move.tool, fill(move.arguments, self.words | {"command": command, "answer": ANSWER}))

    def _write_edit(self, messages: list[dict[str, Any]]) -> str:
        """Write what aider is answered: a block that fits; ones that never do, the same or each another; or the end."""
        if self.scenario == "job" and any(str(one["content"]).startswith(OBSERVED) for one in messages):
            return ANSWER
        number = len(messages) if self.scenario == "budget" else ""
        search, replace = (RED, BLUE) if self.scenario == "job" else (f"the wall is rose{number}", f"{BLUE}{number}")
        block = f"{FILE}\n```\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n"
        return f"The wall must be blue{number}:\n\n{block}\n" + (ANSWER if self.scenario == "job" else "")

    def _say(self, seen: Seen, text: str, call: tuple[str, str] | None = None) -> Play:
        sends = [Send(chunk({"role": "assistant", "content": text}))] if text else []
        if call is not None:
            function = {"name": call[0], "arguments": call[1]}
            part = {"index": 0, "id": f"call_{abs(hash((seen.raw, call))):x}", "type": "function", "function": function}
            sends.append(Send(chunk({"tool_calls": [part]})))
        usage = {"prompt_tokens": len(seen.raw) // CHARS_PER_TOKEN, "completion_tokens": 8 + len(text) + 40}
        usage |= DEAR if self.scenario == "budget" else {}
        end = {"id": "gen-1", "choices": [], "usage": usage | {"total_tokens": sum(list(usage.values())[:2])}}
        finish = Send(chunk({}, "tool_calls" if call else "stop"))
        return (Head(headers=SSE), *sends, finish, Send(frame(end)), Send(b"data: [DONE]\n\n"))


def count_results(messages: list[dict[str, Any]]) -> int:
    """Count the results of calls in a conversation, also those that are sent as texts."""
    return sum(_is_result(message) for message in messages)


def _is_result(message: dict[str, Any]) -> bool:
    if message["role"] in ("tool", "function"):
        return True
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return message["role"] == "user" and any(str(part.get("text", "")).startswith(OBSERVED) for part in parts)
