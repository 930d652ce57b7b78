"""The laws of what is the same call, in both directions: loops in many spellings, and work that only looks like one."""

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Stage
from tests.support.conversation import USER, acted, quiet, stages
from tests.support.loop_histories import law

LOOP = [None, None, Stage.WARN, Stage.WARN, Stage.BREAK]
LAPS = len(LOOP)
hexes = st.integers(16**15, 16**16 - 1).map(lambda number: f"{number:x}")
moments = st.integers(1_700_000_000, 1_799_999_999).map(str)
clocks = st.datetimes().map(lambda moment: f"2026-11-27T{moment:%H:%M:%S}Z")
figures = st.integers(1, 999).map(str)
random_bytes = st.integers(0).map(lambda number: hashlib.sha256(str(number).encode()).digest())
uppers = random_bytes.map(lambda made: "".join(chr(65 + byte % 26) for byte in made[:8]))
base64s = random_bytes.map(lambda made: base64.b64encode(made[:15]).decode())
words = st.text("abcdefghijklmnop", min_size=4, max_size=9).filter(lambda word: not word.endswith("ed"))
answers = st.sampled_from(["error: missing separator", "a b", "fatal: no such thing", "total 4"])


def run(command: str, result: str = "") -> list[dict[str, Any]]:
    return acted("bash", {"command": command}, result)


#: Two spellings of one command, and what may be put around any command.
SPELLED = [
    ["ls -la src", "ls -al src", "ls -l -a src", "ls -la src/", "ls -la ./src", "'ls' -la src", "/bin/ls -la src"],
    ["cat a.txt", 'cat "a.txt"', "cat 'a.txt'", "cat -- a.txt", "cat < a.txt", "cat ./a.txt", "cat $PWD/a.txt"],
    ["grep -rn foo src", "grep -nr foo src", 'grep -rn "foo" src', "grep -r -n 'foo' ./src/"],
    ["git diff a.py", "git --no-pager diff a.py", "git diff -- a.py", "command git diff 'a.py'"],
    ["make all", "make 'all'", "time make all", "cd . && make all", "/usr/bin/make all"],
]
AROUND = ["%s", "%s 2>&1", "%s 2>/dev/null", "%s;", "%s || true", "%s | cat", "%s  # again", "%s 2>&1 | tail -30"]
AROUND += ["%s | head -n 50", "%s && true", "echo once more; %s", "echo 'now, really'\n%s", "%s </dev/null", "  %s "]


@law
@given(st.sampled_from(SPELLED), answers, st.data())
def test_a_command_in_any_spelling_is_the_same(commands: list[str], result: str, data: st.DataObject) -> None:
    """Law: quotes, the order of options, where errors go, filters that only cut, and what is only said make no other
    command: with the same result it is a loop."""
    spelled = st.tuples(st.sampled_from(commands), st.sampled_from(AROUND))
    laps = data.draw(st.lists(spelled, min_size=LAPS, max_size=LAPS))
    assert stages([USER, *(m for command, around in laps for m in run(around % command, result))]) == LOOP


#: What tells of the run alone, with the values that it takes.
OF_THE_RUN = [
    *[(form, figures) for form in ("echo attempt %; make", "echo '=== % ==='; make", "make RETRY=%", "TRY=% make")],
    *[(form, figures) for form in ("./a.sh --retry %", "./a.sh --attempt=%", "timeout % make", "curl --max-time % x")],
    *[(form, words) for form in ("make > /tmp/%.log; tail -5 /tmp/%.log", "make &> /tmp/% || cat /tmp/%")],
    *[(form, figures) for form in ("make > out%.log 2>&1; cat out%.log", "make 2>&1 | tee /tmp/make-%.log")],
    *[(f"curl -H '{name}: %' http://x", hexes) for name in ("X-Request-Id", "x-ms-client-request-id", "X-Nonce")],
    *[(f"curl -H '{name}: %' http://x", hexes) for name in ("traceparent", "X-Amzn-Trace-Id", "Idempotency-Key")],
    *[(f'curl --header "{name}: %" http://x', moments | clocks) for name in ("X-Timestamp", "Date")],
    *[(f"curl 'http://x/y?a=b&{name}=%'", moments) for name in ("_", "ts", "v", "t", "cachebuster", "nocache")],
    *[(f"curl http://x/y?{name}=% | jq .", hexes) for name in ("request_id", "nonce", "cb", "rand", "trace_id")],
    *[(f'curl -d \'{{"{name}": "%", "a": 1}}\' http://x', hexes) for name in ("request_id", "nonce")],
]
OF_THE_RUN_BY_NAME = [
    *[({"url": f"http://x/y?{name}=%"}, moments) for name in ("_", "ts", "timestamp", "v", "cb")],
    *[({"url": "http://x/y", "headers": {name: "%"}}, hexes) for name in ("X-Request-Id", "traceparent", "X-Nonce")],
    ({"url": "http://x/y", "headers": ["Accept: a/b", "X-Request-Id: %"]}, hexes),
    ({"url": "http://x/y", "params": {"q": "a", "_": "%"}}, moments),
    ({"argv": ["bash", "-lc", "make RETRY=%"]}, figures),
]


@law
@given(st.sampled_from(OF_THE_RUN), answers, st.data())
def test_a_command_that_differs_in_its_run_is_the_same(form: Any, result: str, data: st.DataObject) -> None:
    """Law: an attempt, a request's id, a moment, a cache-buster and the name of a log make no other command."""
    laps = data.draw(st.lists(form[1], min_size=LAPS, max_size=LAPS))
    assert stages([USER, *(m for value in laps for m in run(form[0].replace("%", value), result))]) == LOOP


@law
@given(st.sampled_from(OF_THE_RUN_BY_NAME), answers, st.data())
def test_arguments_that_differ_in_their_run_are_the_same(form: Any, result: str, data: st.DataObject) -> None:
    """Law: the same holds in a URL, in headers, in parameters and in a command that is a list."""
    laps = data.draw(st.lists(form[1], min_size=LAPS, max_size=LAPS))
    arguments = [json.loads(json.dumps(form[0]).replace("%", value).replace("argv", "command")) for value in laps]
    assert stages([USER, *(m for one in arguments for m in acted("shell", one, result))]) == LOOP


ERRORS = ["Internal error. Reference: %", "Something went wrong (ref: %)", "Server error, incident %"]
ERRORS += ["Request failed. Support code: %", "Interner Fehler. Referenz: %", "500 Error\nRequest ID: %=="]


@law
@given(st.sampled_from(ERRORS), st.lists(uppers | base64s, min_size=LAPS, max_size=LAPS, unique=True))
def test_an_error_that_ends_in_a_reference_is_the_same(form: str, references: list[str]) -> None:
    """Law: a random reference in an error says nothing of the world; what a success refers to is something new."""
    results = [form.replace("%", reference) for reference in references]
    assert stages([USER, *(m for result in results for m in acted("api", {"x": 1}, result))]) == LOOP
    booked = [f"Booked. Reference: {reference}" for reference in references]
    assert quiet([USER, *(m for result in booked for m in acted("book", {"x": 1}, result))])


NAMES = ["parser", "fooBar", "MyClass", "readFile", "src_lexer", "init", "a.b", "getLine", "Map", "toJson", "main", "x"]


@pytest.mark.parametrize("form", ["Error: unresolved reference: %", "Error in a.c, event %", "failed. Case: %"])
def test_an_error_about_another_name_is_another(form: str) -> None:
    """Law: the name of something in an error is what the error is about."""
    assert quiet([USER, *(m for name in NAMES for m in acted("bash", {"command": "make"}, form.replace("%", name)))])


#: Work that a person does in several equal steps: `%` is what each step is about.
OF_THE_WORLD = [
    "cat %.log", "rm /tmp/%.log", "python gen.py > /tmp/%.csv", "ls %/", "grep -rn % src", "git checkout try%", "./%",
    "echo % > a.txt", "echo % | sha1sum", "echo $%", "pytest -k %", "make -f %", "SEED=% ./fuzz",
    "make -C % | tail -5", "cp a.txt %.txt", "mkdir -p %", "cat a.txt > %.txt", "curl http://x/%",
    "curl 'http://x?id=%'", "make %.log", "./attempt%.sh", "cat retry_%.log", "pytest tests/try%.py",
    "./play --round %", "cat attempt-%/out", "make out%", "curl http://x/attempts/%", "curl 'http://x?page=%'",
    "curl -H 'Accept-Version: v%' http://x", "curl 'http://x?q=%'", "curl -H 'Authorization: Bearer %' http://x",
    'curl -d \'{"name": "%"}\' http://x', "sed -i 's/%=1/%=2/' a", "git commit -m 'try %'", "docker rm %",
    "kill -9 %", "echo hi > /tmp/%; cat /tmp/%", "cat > /tmp/%.py <<'E'\nprint('%')\nE\npython /tmp/%.py",
    "./% | tee /tmp/%.log", "./% > /tmp/a.log; cat /tmp/a.log",
]  # fmt: skip
#: Names of the things that a call is about.
NAMED = ["id", "message_id", "order_id", "session_id", "container_id", "task_uuid", "key", "api_key", "run_id"]


@law
@given(st.sampled_from(OF_THE_WORLD), st.sampled_from(["", "ok", "error: x", "no such file"]), st.data())
def test_a_command_about_something_else_is_another(form: str, result: str, data: st.DataObject) -> None:
    """Law: another file, word, address, id or content makes another command, whatever they all answer."""
    laps = data.draw(st.lists(words, min_size=6, max_size=6, unique=True))
    assert quiet([USER, *(m for value in laps for m in run(form.replace("%", value), result))])


@law
@given(st.sampled_from(NAMED), st.sampled_from(["ok", "deleted", "", "[]"]), st.data())
def test_an_id_of_what_a_call_is_about_makes_another_call(name: str, result: str, data: st.DataObject) -> None:
    """Law: five messages that are deleted by their ids are five calls, whatever form the ids have."""
    laps = data.draw(st.lists(st.uuids().map(str) | hexes | words, min_size=6, max_size=6, unique=True))
    assert quiet([USER, *(m for value in laps for m in acted("delete_thing", {name: value}, result))])


STEPS = [("gdb", {"command": "next"}), ("gdb", {"cmd": "n"}), ("terminal", {"input": "n\n"}), ("debug_step_over", {})]
STEPS += [("debugger", {"action": "continue"}), ("lldb", {"command": "step"})]


@law
@given(st.sampled_from(STEPS), st.lists(st.sampled_from(["12\t  x = f(x);", "13\t  y += x;", "14\t}"]), min_size=1))
def test_a_debugger_steps_through_a_loop(step: tuple[str, dict[str, str]], body: list[str]) -> None:
    """Law: steps of a debugger that show the same lines again go through a loop of the program: neither a nudge before
    the tenth round, nor a break before the twentieth. Once the program has ended, the steps lead nowhere."""
    rounds = [m for line in (body * 9)[:9] for m in acted(*step, line)]
    assert quiet([USER, *rounds])
    over = [m for _ in range(LAPS) for m in acted(*step, "error: the program is not being run")]
    assert Stage.BREAK in stages([USER, *over])
