"""Made loops and honest repetitions, one for each way in which agents hide a loop or look like one.

A case is a conversation that is made lap by lap. A loop must be nudged when its fourth lap begins (where figures must
show first that they lead nowhere: its sixth), and broken when its eighth does, never without a nudge before. What only
looks like one must be left alone.
"""

import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LAPS = 9
Message = dict[str, Any]
Lap = Callable[[int], list[Message]]


@dataclass(frozen=True)
class LoopCase:
    """One conversation: `lap` gives the messages of a lap, the first of them an answer. `period`: answers of a lap."""

    name: str
    lap: Lap
    loops: bool
    period: int = 1
    laps: int = LAPS

    @property
    def nudged_by(self) -> int:
        """The answer at which it must have been nudged."""
        return 6 if self.period == 1 else 3 * self.period + 1

    @property
    def broken_by(self) -> int:
        """The answer at which it must have been broken."""
        return 8 if self.period == 1 else 5 * self.period + 4

    def is_met(self, nudged: int | None, broken: int | None) -> bool:
        """Whether an answer was nudged and another broken as they must be."""
        if not self.loops:
            return nudged is None and broken is None
        return bool(nudged and broken and nudged <= self.nudged_by and nudged < broken <= self.broken_by)

    def build_conversation(self) -> list[Message]:
        """Build the whole conversation, its first message the user's."""
        messages: list[Message] = [{"role": "user", "content": "Please find out why the build of the shop fails."}]
        for number in range(self.laps):
            messages += self.lap(number)
        return messages


def _ask(name: str, arguments: dict[str, Any], number: int, text: str | None = None) -> Message:
    call = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call_{number}", "type": "function", "function": call}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def _tell(result: Any, number: int) -> Message:
    text = result if isinstance(result, str) else json.dumps(result)
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def _act(name: str, arguments: dict[str, Any], result: Any, number: int) -> list[Message]:
    return [_ask(name, arguments, number), _tell(result, number)]


def _say(text: str, answer: Any) -> list[Message]:
    return [{"role": "assistant", "content": text}, {"role": "user", "content": answer}]


def _dice(name: str, number: int) -> random.Random:
    return random.Random(f"{name}:{number}")


def _hex(name: str, number: int, chars: int = 40) -> str:
    return f"{_dice(name, number).getrandbits(4 * chars):0{chars}x}"


def _uuid(name: str, number: int) -> str:
    return str(uuid.UUID(int=_dice(name, number).getrandbits(128), version=4))


FILE = "\n".join(f"    total_{word} = compute(order, {word!r})" for word in ("net", "gross", "tax", "fees", "rest"))


def _list_noise() -> Iterator[tuple[str, Callable[[int], Any]]]:
    """List results that change from lap to lap and say nothing new."""
    yield "a guard counts the calls", lambda i: f"BLOCKED: you have called read_file {i + 3} times with this path."
    yield "a warning counts in words", lambda i: f"Warning: call no. {i + 2} of read_file with equal arguments. Stop."
    yield "the window of an edited file", lambda i: f"[File: shop.py ({98 + i} lines total)]\n{FILE}\nFile updated."
    yield "line numbers that grow", lambda i: f"Edited at line {120 + 3 * i}:\n{FILE}\nIndentationError: bad indent"
    yield "the attempt of a failure", lambda i: f"attempt {i + 1}: connection to db.internal refused"
    yield "a failure that counts up", lambda i: {"success": False, "error": f"lock is held by job {4400 + i}"}
    yield "a retry counter in JSON", lambda i: {"ok": False, "error": "upstream is down", "retry_count": i + 1}
    yield "memory in megabytes", lambda i: f"build failed: heap {_dice('mem', i).randint(300, 900)} MB of 2048 MB"
    yield "a port of its own", lambda i: f"ECONNRESET 127.0.0.1:{_dice('p', i).randint(30_000, 60_000)} -> 5432"
    yield "a random seed", lambda i: f"Using seed {_dice('seed', i).randint(10**6, 10**7)}\nFAILED test_total: 3 != 4"
    yield "a clock in the middle", lambda i: f"build of shop at 12:{10 + i}:{(7 * i) % 60:02} failed: no rule for all"
    yield "a commit's hash", lambda i: f"HEAD is now at {_hex('git', i)[:7]} wip\nnothing to commit"
    yield "a naked digest in a text", lambda i: f"image pushed as {_hex('img', i, 64)}, tests failed: exit code 2"
    yield "a rate in KB/s", lambda i: f"curl: (22) error 404\n{_dice('kb', i).randint(100, 900)} KB/s, not found"
    yield "a depth that goes up and down", lambda i: {"queue_depth": (7, 9, 6, 8, 7, 9, 5, 8, 6)[i], "worker": "idle"}
    yield "lines in another order", lambda i: "\n".join(_dice("ls", i).sample(FILE.splitlines(), 5))
    yield "a list in another order", lambda i: {"files": _dice("l", i).sample(["a.py", "b.py", "c.py", "d.md"], 4)}
    yield "a cut that counts", lambda i: f"{FILE}\n[... {12_017 + (5 * i) % 7} characters truncated ...]\n{FILE}"
    yield "a stamped log of 300 lines", _stamp_log
    yield "many durations of tests", _time_tests


def _stamp_log(lap: int) -> str:
    dice = _dice("log", lap)
    return "\n".join(f"{dice.randint(0, 23):02}:{n % 60:02}:{lap:02} worker {n} waits for its lock" for n in range(300))


def _time_tests(lap: int) -> str:
    dice = _dice("pytest", lap)
    lines = [f"tests/test_{n}.py::test_total PASSED [{n // 4}%] ({dice.random():.2f}s)" for n in range(300)]
    return "\n".join([*lines, f"1 failed, 300 passed in {dice.random() * 20:.2f}s"])


def _list_blurred() -> Iterator[tuple[str, Callable[[int], dict[str, Any]]]]:
    """List arguments that differ from lap to lap and mean the same."""
    yield "a request id", lambda i: {"path": "shop.py", "request_id": _uuid("a", i)}
    yield "a timestamp", lambda i: {"path": "shop.py", "timestamp": f"2026-03-03T10:{i:02}:01Z"}
    yield "a moment in a text", lambda i: {"command": f"make build --log build-2026-03-03T10:{i:02}:{i:02}.log"}
    yield "a uuid in a command", lambda i: {"command": f"make build --output /tmp/{_uuid('b', i)}"}
    yield "a timeout that grows", lambda i: {"command": "make build", "timeout": 30 * (i + 1)}
    yield "a timeout in a command", lambda i: {"command": f"timeout {10 * (i + 1)} make build"}
    yield "a comment behind", lambda i: {"command": f"make build  # attempt {i + 1}"}
    yield "a comment of its own line", lambda i: {"code": f"# try number {i + 1}\nprint(open('shop.py').read())"}
    yield "a description in other words", lambda i: {"command": "make build", "description": f"{_uuid('d', i)[:8]} go"}
    yield "a reason in other words", lambda i: {"path": "shop.py", "explanation": f"to see it, {_hex('e', i, 9)}"}
    yield "spaces in the command", lambda i: {"command": "make " + " " * (i % 4) + "build" + " " * (i % 3)}
    yield "a dot and a slash", lambda i: {"command": ("cat ./shop.py", "cat shop.py")[i % 2]}
    yield "an attempt among the arguments", lambda i: {"path": "shop.py", "attempt": i}


def _list_text_agents() -> Iterator[tuple[str, Lap]]:
    """List agents whose calls are text and whose results are user messages."""
    seen = "Observation:\nFAILED test_total: 3 != 4"
    call = {"name": "run_tests", "arguments": {"path": "tests"}}
    yield "a fence", lambda i: _say(f"Run them{'.' * i}\n```bash\npytest -q\n```", "1 failed: test_total, 3 != 4")
    yield "Action and its input", lambda i: _say('Thought: hm\nAction: run_tests\nAction Input: {"path": "."}', seen)
    envelope, told = f"<tool_call>{json.dumps(call)}</tool_call>", "<tool_response>\n1 failed\n</tool_response>"
    yield "an envelope", lambda i: _say(envelope, told)
    xml, read = "<read_file>\n<path>shop.py</path>\n</read_file>", f"[read_file for 'shop.py'] Result:\n{FILE}"
    yield "XML elements", lambda i: _say(f"Step {_hex('x', i, 4)}.\n{xml}", read)
    yield "a shell's element", lambda i: _say("<execute_bash>\npytest -q\n</execute_bash>", "1 failed [exit code 1]")
    yield "bare JSON", lambda i: _say(json.dumps({"tool": "run_tests", "args": {"path": "."}}), "1 failed: 3 != 4")
    code, logs = "<code>\nprint(read('shop.py'))\n</code>", f"Observation:\nExecution logs:\n{FILE}\nLast output:\nNone"
    yield "code of an interpreter", lambda i: _say(f"Thought: once more, {i}\n{code}", [{"type": "text", "text": logs}])
    yield "calls that a framework writes down", _write_framework_lap
    yield "a file in a fence", lambda i: _say(f"shop.py\n```python\n{FILE}\n```", f"Test {i + 1} failed: 3 != 4")


def _write_framework_lap(number: int) -> list[Message]:
    listed = [{"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": {"path": "a.py"}}}]
    return _say(f"Calling tools:\n{listed}", [{"type": "text", "text": f"Observation:\n{FILE}"}])


def _list_user_messages() -> Iterator[tuple[str, Callable[[int], Any]]]:
    """List what harnesses put on the user's side while an agent works."""
    yield "steps left", lambda i: f"You have {20 - i} steps left."
    yield "go on with it", lambda i: "Please continue working on the task on whatever approach you think is suitable."
    yield "a bare ok", lambda i: "ok"
    yield "no tool was called", lambda i: "You did not call a tool. Call one, or finish."
    yield "two reminders in turn", lambda i: ("Remember to use the tools.", "Keep your answer short, please.")[i % 2]
    yield "a reminder with the time", lambda i: f"<system-reminder>It is 10:{i:02} now.</system-reminder>"
    yield "an equal screenshot", lambda i: [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def _list_texts() -> Iterator[tuple[str, Lap, int]]:
    """List texts that repeat without a call: (name, lap, period)."""
    sorry = "I am sorry, I can't open the file. Shall I try again?"
    yield "the same text, answered ok", lambda i: _say(sorry, "ok"), 1
    yield "the same text, pushed on", lambda i: _say(sorry, "Please continue working on it."), 1
    yield "two texts in turn", lambda i: _say((sorry, "Let me look at the file again, then.")[i % 2], "continue"), 2
    yield "thoughts alone", _think_alone, 1


def _think_alone(number: int) -> list[Message]:
    thought = "The user wants the build to be fixed. I should look at the file first."
    return [{"role": "assistant", "content": None, "reasoning_content": thought}, {"role": "user", "content": "go on"}]


def _list_polls() -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """List repetitions that are the world's pace: (name, tool, arguments, result)."""
    shell = "bash"
    yield "checks of CI", shell, {"command": "gh pr checks 12"}, "lint\tpass\t12s\nbuild\tpending\t0\thttps://ci"
    yield "a run of CI", shell, {"command": "gh run view 88"}, "main build · 88\nJOBS\n* build (ID 5) in progress"
    yield "rows of a cluster", shell, {"command": "kubectl get pods"}, "NAME READY STATUS\nshop-1 0/1 ContainerCreating"
    yield "a rollout", shell, {"command": "kubectl rollout status deploy/shop"}, "Waiting: 1 of 3 updated replicas"
    yield "too many requests", "http_get", {"url": "https://api/x"}, "HTTP 429 Too Many Requests"
    yield "too many requests, in JSON", "search", {"q": "shop"}, {"error": {"code": 429, "message": "rate limit"}}
    yield "an empty inbox", "check_inbox", {}, "[]"
    yield "no new mail", "read_mail", {"folder": "in"}, "No new mail."
    yield "still working on it", "get_report", {"id": 3}, "still working on it"
    yield "pending, nested", "get_job", {"id": 3}, {"data": {"job": {"id": 3, "status": "pending"}}}
    yield "pending, among many", "get_job", {"id": 3}, dict.fromkeys("abcdefgh", 1) | {"status": "pending"}
    yield "a key", "press_key", {"key": "Down"}, "ok"
    yield "a key by its action", "computer", {"action": "key", "text": "Tab"}, "ok"
    yield "a step of a debugger", "debugger", {"command": "next"}, "ok"
    yield "a folder up", shell, {"command": "cd .."}, ""
    yield "a click", "browser_click", {"ref": "next-page"}, "Clicked."
    yield "one more in the cart", "add_to_cart", {"item": "apple"}, {"success": True}
    yield "a move", "move_forward", {}, {"ok": True}


def _list_progress() -> Iterator[tuple[str, Callable[[int], Any]]]:
    """List results that move towards an end."""
    yield "percent", lambda i: f"Download of the model: {4 * i} % done, from the mirror"
    yield "percent by one", lambda i: {"job": "import of orders", "progress": i + 1, "note": "goes on"}
    yield "bytes of a whole", lambda i: f"copied {1_048_576 * (i + 1)} of 104857600 bytes to the backup volume"
    yield "rows found", lambda i: f"scan of table orders goes on, rows found so far: {120 * i + i * i}"
    yield "files left", lambda i: f"indexing the repository in the background, {900 - 7 * i} files left"
    yield "epochs", lambda i: f"training of the classifier, epoch {i + 1}/20, loss {1 / (i + 1):.3f}"
    yield "a growing log", lambda i: "build begins\n" + "\n".join(f"compiled module {chr(97 + n)}" for n in range(i))


def _list_other_work() -> Iterator[tuple[str, Lap]]:
    """List work that looks like a loop."""
    yield "pages", lambda i: _act("read_file", {"path": "a.py", "offset": 100 * i}, f"{FILE}\n{_hex('page', i)}", i)
    yield "entities by id", lambda i: _act("get_user", {"user_id": _uuid("u", i)}, {"name": _hex("n", i, 8)}, i)
    yield "unlike edits, the same failing test", _edit_and_test
    yield "a person who speaks", lambda i: [*_act("weather", {"city": "Rome"}, "sunny", i), *_chat(i)]
    yield "code in a chat", lambda i: _say(f"```python\nprint({_hex('c', i, 6)!r})\n```", f"Now do {_hex('q', i)}")


def _chat(number: int) -> list[Message]:
    words = ("And for tomorrow?", "Is it windy?", "What shall I wear?", "Thanks. Is that sure?", "And humidity?")
    return _say(f"Sunny, {number}.", words[number % 5] * (number + 1))


def _edit_and_test(number: int) -> list[Message]:
    edit = _act("edit", {"path": "a.py", "new": f"total = {_hex('edit', number, 8)}"}, "ok", 2 * number)
    return [*edit, *_act("run_tests", {}, "1 failed: test_total, 3 != 4", 2 * number + 1)]


def _cycle(period: int) -> Lap:
    names = [f"step_{chr(97 + place)}" for place in range(period)]
    return lambda i: [
        m
        for place, name in enumerate(names)
        for m in _act(name, {"at": place}, f"result of {name}", i * period + place)
    ]


def build_cases() -> list[LoopCase]:
    """Build all cases."""
    cases = [LoopCase(f"result: {n}", _repeat("run_build", {"target": "all"}, r), True) for n, r in _list_noise()]
    cases += [LoopCase(f"arguments: {n}", _blur(arguments), True) for n, arguments in _list_blurred()]
    cases += [LoopCase(f"text agent: {n}", lap, True) for n, lap in _list_text_agents()]
    cases += [LoopCase(f"beside it: {n}", _accompany(said), True) for n, said in _list_user_messages()]
    cases += [LoopCase(f"text: {n}", lap, True, period) for n, lap, period in _list_texts()]
    cases += [LoopCase(f"period {n}", _cycle(n), True, n, laps=6) for n in (2, 5, 6, 7, 9, 12)]
    cases += [LoopCase("a thought between", _think_between, True, 2)]
    cases += [LoopCase("a thought in the batch", _think_beside, True)]
    cases += [LoopCase(f"poll: {n}", _repeat(tool, a, r), False, laps=7) for n, tool, a, r in _list_polls()]
    cases += [LoopCase(f"progress: {n}", _repeat("look_at_job", {"id": 3}, r), False) for n, r in _list_progress()]
    cases += [LoopCase(f"work: {n}", lap, False) for n, lap in _list_other_work()]
    return cases


def _repeat(tool: str, arguments: dict[str, Any], result: Any) -> Lap:
    return lambda i: _act(tool, arguments, result(i) if callable(result) else result, i)


def _blur(arguments: Callable[[int], dict[str, Any]]) -> Lap:
    return lambda i: _act("run_shell" if "command" in arguments(i) else "read", arguments(i), f"{FILE}\nfailed", i)


def _accompany(said: Callable[[int], Any]) -> Lap:
    return lambda i: [*_act("read", {"path": "shop.py"}, FILE, i), {"role": "user", "content": said(i)}]


def _think_between(number: int) -> list[Message]:
    thought = _act("think", {"thought": f"Perhaps {_hex('t', number, 12)} is the cause."}, "", 2 * number)
    return [*thought, *_act("read", {"path": "shop.py"}, FILE, 2 * number + 1)]


def _think_beside(number: int) -> list[Message]:
    answer = _ask("read", {"path": "shop.py"}, number)
    thought = {"name": "sequentialthinking", "arguments": json.dumps({"thought": _hex("s", number, 12)})}
    answer["tool_calls"].append({"id": f"call_t{number}", "type": "function", "function": thought})
    beside = {"role": "tool", "tool_call_id": f"call_t{number}", "content": json.dumps({"thoughtNumber": number})}
    return [answer, _tell(FILE, number), beside]
