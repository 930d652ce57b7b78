"""The trials of published agents: what needs no agent and no server."""

import json
import os
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from deployments.config.app_config import load
from deployments.tiers.scripted.player import Facts, fits
from deployments.tiers.scripted.script import load_script
from loadtests.real_agents.agents import AGENTS, HERE, Launch, find_python
from loadtests.real_agents.records import FIXTURE, reduce_record
from loadtests.real_agents.results import build_table, compare_sessions
from loadtests.real_agents.runs import EXCHANGES_MAX, REFUSED_MAX, Run, is_enough, run_launch
from loadtests.real_agents.tap import Exchange, Tap, listen, read_answer
from loadtests.real_agents.trials import KINDS, TRIALS, build_rules, build_server_args
from loadtests.real_agents.verdicts import LAPS_MAX, Verdict, judge_trial
from tests.evals.loops_eval import load_runs
from tests.support.loopback import LoopbackHandler, LoopbackServer
from tests.support.tier_asking import ask

HERMES = next(trial for trial in TRIALS if trial.name == "hermes-same")
AIDER = next(trial for trial in TRIALS if trial.name == "aider-same")
CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "é.txt"}'}}
REFUSAL = {"error": {"code": "loop_detected", "message": "the same again"}}


def build_lap(number: int, loop: str | None = None, answer: dict | None = None, session: str = "s") -> Exchange:
    user = {"role": "user", "content": HERMES.task}
    body = {"tools": [{}], "messages": [user, *({"role": "tool", "content": f"{n}"} for n in range(number))]}
    return Exchange(float(number), body, 200, answer or {"role": "assistant", "tool_calls": [CALL]}, loop, session)


def judge(*laps: Exchange, code: int | None = 0) -> Verdict:
    return judge_trial(HERMES, laps, code, 1.0)


def test_every_agent_has_every_kind_of_loop_and_pins():
    """Law: each agent goes round in each kind, and is installed in exactly the versions that the table names."""
    assert {(trial.agent, trial.kind) for trial in TRIALS} == {(agent, kind) for agent in AGENTS for kind in KINDS}
    for agent in AGENTS.values():
        lines = (HERE / "requirements" / f"{agent.packages}.txt").read_text(encoding="utf-8").splitlines()
        assert lines
        assert all(line.count("==") == 1 for line in lines)


def test_the_servers_configuration_is_one():
    """Law: what the server is started with is valid, with loops detected as shipped, and not for a recording."""
    assert load(build_server_args(TRIALS)).reliability.loop_detection.enabled
    assert not load(build_server_args(TRIALS, detect=False)).reliability.loop_detection.enabled


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_a_script_answers_its_own_trial(trial):
    """Law: the task of a trial, wherever it stands in the conversation, is answered by the script of that trial."""
    script = load_script(build_rules(TRIALS))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}] if trial.mark == "tools" else []
    facts = Facts(ask(f"New task:\n{trial.task}", tools=tuple(tools)), "fast")

    chosen = next(rule for rule in script.rules if fits(rule.when, facts))

    assert chosen == load_script(build_rules([trial])).rules[0]


@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_streamed_answer_reads_as_a_whole_one(size):
    """Law: however an answer is cut into chunks, it is read as the message that was sent whole, with the report."""
    message = {"role": "assistant", "content": "Thought: look.\n<code>", "tool_calls": [CALL]}
    report = {"loop": "nudged", "session": "s1"}
    whole = json.dumps({"choices": [{"message": message}], "mlx_stack": report}).encode()
    text, arguments = message["content"], CALL["function"]["arguments"]
    head = {"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": ""}}
    deltas = [{"content": text[at : at + size]} for at in range(0, len(text), size)]
    deltas += [{"tool_calls": [head]}]
    deltas += [
        {"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + size]}}]}
        for at in range(0, len(arguments), size)
    ]
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas] + [{"choices": [], "mlx_stack": report}]
    streamed = b": keep-alive\n\n" + b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)

    assert read_answer(whole) == read_answer(streamed + b"data: [DONE]\n\n") == (message, report)


def test_an_error_is_read_wherever_it_stands():
    """Law: a refusal by status and one in a stream are the same refusal."""
    frame = b'data: {"choices": [{"delta": {"content": "So"}}]}\n\ndata: ' + json.dumps(REFUSAL).encode() + b"\n\n"

    assert read_answer(json.dumps(REFUSAL).encode())[0]["error"] == read_answer(frame)[0]["error"] == REFUSAL["error"]


def test_a_run_that_is_nudged_and_ended_passes():
    """Law: nudged first, then ended, in at most eight laps; the retries after the refusal are no laps."""
    refused = build_lap(4, answer=REFUSAL)
    found = judge(build_lap(0), build_lap(1), build_lap(2, "nudged"), build_lap(3, "nudged"), refused, refused)

    assert (found.nudged_at, found.ended_at, found.laps, found.again, found.met) == (3, 5, 5, 1, True)


def test_what_is_ended_without_a_nudge_or_late_or_never_fails():
    """Law: each part of the bar is needed."""
    laps = [build_lap(number, "nudged" if number == 2 else None) for number in range(LAPS_MAX + 1)]
    plain = [build_lap(number) for number in range(4)]

    assert not judge(*plain, build_lap(4, answer=REFUSAL)).met
    assert not judge(*laps, build_lap(9, answer=REFUSAL)).met
    assert not judge(*laps[:5], code=None).met
    assert not judge().met
    assert judge(*laps[:4]).met


def test_titles_and_summaries_are_no_laps():
    """Law: what an agent asks for beside its work neither counts nor makes a second session."""
    title = Exchange(0.0, {"messages": [{"role": "user", "content": HERMES.task}]}, 200, {}, None, "another")

    assert judge(title, build_lap(0), title).laps == 1
    assert judge(title, build_lap(0), title).sessions == ("s",)


def build_run(*sessions: str, twin: bool = False) -> Run:
    """Build a run whose laps were of these sessions."""
    laps = [build_lap(number, session=name) for number, name in enumerate(sessions)]
    return Run(HERMES, twin, laps, "", judge(*laps))


def test_runs_at_once_must_be_sessions_of_their_own():
    """Law: a run is one session, and no other's at that time."""
    assert compare_sessions([build_run("a"), build_run("b", twin=True), build_run("c", twin=True)]) == []
    assert compare_sessions([build_run("b", twin=True), build_run("b", twin=True)])
    assert compare_sessions([build_run("a", "b")])
    assert "never" in build_table([build_run("a")], [])


def test_a_run_is_cut_short_when_nothing_new_can_come():
    """Law: nobody goes round for ever, and nobody is refused for ever."""
    assert not is_enough([build_lap(number) for number in range(EXCHANGES_MAX - 1)])
    assert is_enough([build_lap(number) for number in range(EXCHANGES_MAX)])
    assert is_enough([build_lap(5, answer=REFUSAL)] * REFUSED_MAX)


def test_an_agent_that_does_not_end_is_ended_with_its_children(tmp_path):
    """Law: nothing that an agent has started outlives its run, also in a session of its own."""
    child = "import os, time; os.setsid(); open('child', 'w').write(str(os.getpid())); time.sleep(600)"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    marker = tmp_path / "child"
    deadline = time.monotonic() + 30

    def may_end() -> bool:
        return (marker.exists() and marker.read_text() != "") or time.monotonic() > deadline

    code, _ = run_launch(Launch([sys.executable, "-c", parent], {}), tmp_path, tmp_path, may_end)

    assert code is None
    pid = int(marker.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_agent_gets_its_typing_and_no_keys(tmp_path, monkeypatch):
    """Law: what is typed arrives, and of this machine's environment only what is harmless."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    echo = "import os, sys; print(sys.stdin.read(), 'OPENAI_API_KEY' in os.environ, os.environ['HOME']); sys.exit(3)"

    code, output = run_launch(Launch([sys.executable, "-c", echo], {}, "so\n"), tmp_path, tmp_path, lambda: False)

    assert code == 3
    assert output.split() == ["so", "False", str(tmp_path)]


@pytest.fixture
def upstream():
    """A server that answers a stream of two chunks, and echoes the key."""

    class Handler(LoopbackHandler):
        def post(self) -> None:
            self.read_body()
            chunks = ({"choices": [{"delta": {"content": "So"}}]}, {"choices": [], "mlx_stack": {"loop": "nudged"}})
            data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
            self.reply(data.encode(), headers={"x-mlx-stack-session": self.headers["authorization"]})

    with LoopbackServer(Handler) as server:
        yield server.url


def test_the_tap_passes_on_what_it_keeps(upstream):
    """Law: the agent gets the server's bytes and headers, the server the agent's, and the record has both."""
    with listen(upstream, Tap()) as tap:
        url = f"{tap.url}/v1/chat/completions"
        answer = httpx.post(url, json={"messages": []}, headers={"authorization": "Bearer k"}, trust_env=False)

    assert answer.text.count("data: ") == 2
    assert answer.headers["x-mlx-stack-session"] == "Bearer k"
    kept = tap.exchanges[0]
    assert (kept.body, kept.loop, kept.session) == ({"messages": []}, "nudged", "Bearer k")
    assert kept.answer == {"role": "assistant", "content": "So"}


def test_a_record_is_reduced_to_its_laps():
    """Law: at most eight laps with history and answer, without tools and long system prompts; the last is known."""
    head = [{"role": "system", "content": "x" * 9000}, {"role": "user", "content": AIDER.task}]
    bodies = [{"stream": True, "tools": [1], "messages": [*head, {"n": n, "role": "user"}]} for n in range(12)]
    for count in (3, 12):
        found = list(reduce_record(AIDER, iter([{"body": body, "answer": {"n": 1}} for body in bodies[:count]])))

        assert [lap["lap"] for lap in found] == list(range(1, min(count, LAPS_MAX) + 1))
        assert [lap["last"] for lap in found] == [count == 3 and lap == 3 for lap in range(1, len(found) + 1)]
        assert all(len(json.dumps(lap)) < 1000 and lap["messages"][1:] for lap in found)


def test_the_fixture_is_small_and_of_no_machine():
    """Law: the recorded laps are of all trials, and name no folder of where they were recorded."""
    recorded = load_runs(FIXTURE)

    assert {lap["trial"] for lap in recorded} == {trial.name for trial in TRIALS}
    assert FIXTURE.stat().st_size < 300_000
    assert "/tmp/ms-" not in json.dumps(recorded)
    assert "/root" not in json.dumps(recorded)


def test_a_python_is_found_or_missed_in_words(tmp_path, monkeypatch):
    """Law: the first version that is there is taken, on the PATH or of pyenv; none is an error that names them."""
    made = tmp_path / "versions" / "3.12.9" / "bin" / "python3.12"
    made.parent.mkdir(parents=True)
    made.touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", os.fspath(Path(tmp_path)))

    assert find_python(("3.99", "3.12")) == str(made)
    with pytest.raises(FileNotFoundError, match=r"3\.99"):
        find_python(("3.99",))
