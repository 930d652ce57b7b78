"""The played models: each fault once and in its place, the good one without any; and what is installed is pinned."""

import json
from typing import Any

import pytest

from tests.clients.catalog import CLIENTS
from tests.clients.install import find_pins, read_version
from tests.clients.moves import ANSWER, MOVES, TASK
from tests.clients.players import FAULTS, Players, count_results
from tests.clients.wires import Answer, chat
from tests.support.plays import Seen, Send

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read_file", "edit_file", "run_command")]


def ask(players: Players, results: int, *, good: bool = False, tools: list[dict[str, Any]] = TOOLS) -> Answer:
    """Ask one of the models after so many results."""
    messages = [{"role": "user", "content": TASK}, *({"role": "tool", "content": str(n)} for n in range(results))]
    raw = json.dumps({"messages": messages, "tools": tools}).encode()
    seen = Seen(method="POST", path="/", headers={}, raw=raw)
    play = players.play(seen, weak=not good)
    return chat.read_answer(b"".join(act.data for act in play if isinstance(act, Send)))


def build(scenario: str = "job") -> Players:
    return Players(scenario, MOVES["driver"], {"file": "notes.txt", "folder": "."})


def test_the_weak_model_errs_in_five_ways():
    """Text instead of a call, an unknown tool once, Python's spelling, nothing at all, and the same for ever."""
    players = build()
    written, invented, told, literals, missing = (ask(players, step) for step in (0, 1, 1, 2, 3))

    assert "<tool_call>" in written.text
    assert not written.calls
    assert invented.calls[0].name not in {"read_file", "edit_file", "run_command"}
    assert told.calls[0].name == "run_command"
    with pytest.raises(ValueError, match="property name"):
        json.loads(literals.calls[0].arguments)
    assert missing.calls[0].arguments == ask(players, 3).calls[0].arguments == "{}"
    assert ask(players, 4).calls == ask(players, 9).calls
    assert players.played == set(FAULTS)


def test_the_good_model_does_the_job():
    """Each step is a valid call, and then there is an answer."""
    answers = [ask(build(), step, good=True) for step in range(5)]

    assert [answer.calls[0].name for answer in answers[:4]] == ["read_file", "run_command", "edit_file", "run_command"]
    assert all(json.loads(answer.calls[0].arguments) for answer in answers[:4])
    assert answers[4].text == ANSWER


def test_the_other_plays():
    """In a loop both repeat themselves; for the budget no two looks are alike and each is dear; dead is a 500."""
    loop, budget = build("loop"), build("budget")

    assert ask(loop, 0).calls == ask(loop, 5, good=True).calls
    assert len({ask(budget, step).calls[0].arguments for step in range(12)}) == 12
    assert ask(budget, 0).usage[1] > 60_000
    seen = Seen(method="POST", path="/", headers={}, raw=b'{"messages": []}')
    assert build("dead").play(seen, weak=True)[0].status == 500


def test_what_is_not_for_the_job_gets_two_words():
    """A title needs no tool."""
    assert ask(build(), 0, tools=[]).text == "Red and blue"


def test_results_are_counted_in_any_spelling():
    """Native ones, and those that agents without native calls send as texts."""
    parts = [{"type": "text", "text": "Observation:\n1"}]
    history = [{"role": "user", "content": TASK}, {"role": "tool", "content": "1"}, {"role": "user", "content": parts}]

    assert count_results(history) == 2


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_is_pinned(client):
    """Each is installed in the version that the table names, and no package of it in any other."""
    wanted = find_pins(client.packages).read_text(encoding="utf-8")
    names = wanted.splitlines() if "==" in wanted else list(json.loads(wanted)["dependencies"].values())

    assert read_version(client.packages) in wanted
    assert all(("==" in name) == ("==" in wanted) and not set(name) & set("^~<>*") for name in names)


def test_no_two_clients_have_one_name():
    """The record of a run is named by its client."""
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
