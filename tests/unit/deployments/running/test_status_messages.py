"""What the terminal shows: one line for each change, whatever comes through the pipe."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.running.status_messages import (
    _WORDS_MAX,
    RunStatus,
    ServerPlace,
    can_answer,
    failure,
    read_news,
    ready_lines,
)

STATES = ("starting", "loading", "ready", "asleep", "unavailable")
tiers = st.dictionaries(
    st.sampled_from(["fast", "slow"]),
    st.fixed_dictionaries({"state": st.sampled_from(STATES), "reason": st.sampled_from(["", "no key"])}),
)
PLACE = ServerPlace(url="http://127.0.0.1:8000", config="c.yaml", log="/tmp/log")


@given(st.lists(tiers, max_size=8))
def test_a_line_for_each_change_and_no_other(told):
    """A tier that says the same again is not worth a line."""
    standing, seen = RunStatus(), {}
    for news in told:
        changed = [name for name, tier in news.items() if seen.get(name) != tier]
        seen |= news
        lines = read_news(standing, json.dumps({"tiers": news}).encode())
        assert [line.split()[:2] for line in lines] == [[name, news[name]["state"]] for name in changed]

    assert standing.answers == can_answer(tier["state"] for tier in seen.values())


@given(st.lists(st.sampled_from(STATES), max_size=4))
def test_a_sleeper_counts_unless_one_before_it_is_nearly_there(states):
    """Who is told that the server is ready doesn't wait for a tier to wake while the first one is still loading."""
    before = states[: states.index("asleep")] if "asleep" in states else states

    woken = "asleep" in states and not {"starting", "loading"} & set(before)
    assert can_answer(states) == ("ready" in states or woken)


def test_a_percentage_that_goes_on_is_no_line():
    """A model that is on its way for minutes is one line, and one more when it is there."""
    standing, lines = RunStatus(), []
    for reason in ("0 % of 491 MB", "1 % of 491 MB", "99 % of 491 MB", "converting model.gguf"):
        tier = {"state": "loading", "reason": reason, "model": "auto"}
        lines += read_news(standing, json.dumps({"tiers": {"standard": tier}}).encode())

    assert [line.split("; ")[1] for line in lines] == ["0 % of 491 MB", "converting model.gguf"]
    assert standing.tiers["standard"]["reason"] == "converting model.gguf"


@given(st.binary(max_size=60))
def test_what_is_no_news_is_passed_over(line):
    """A broken line, as two writers may leave it in a pipe, changes nothing and raises nothing."""
    try:
        json.loads(line)
    except ValueError:
        assert read_news(RunStatus(), line) == []


@given(st.integers(0, 200), st.floats(0, 1e5))
def test_the_line_that_is_written_over_fits_the_terminal(columns, seconds):
    """A line that wraps could not be written over."""
    standing = RunStatus(tiers={"longctx": {"state": "loading"}}, ray_session="/tmp/ray/s")

    assert len(standing.progress(seconds, columns)) <= max(0, columns - 1)


STACK = """Deploying app 'a' failed with exception:
Traceback (most recent call last):
  File "x.py", line 1, in build
    raise ConfigError("wrong")
deployments.config.ConfigError: http_options.host: 0.0.0.0 is not loopback
"""


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([STACK], "http_options.host: 0.0.0.0 is not loopback"),
        (["\x1b[36mray::build()\x1b[39m deployments.tiers.scripted.script.ScriptError: rule 1: no"], "rule 1: no"),
        (["", "Failed.\nTraceback:\n  File x\nModuleNotFoundError: No module named 'no'"],
         "ModuleNotFoundError: No module named 'no'"),
        (["The deployment failed to start 3 times in a row."], "The deployment failed to start 3 times in a row."),
        ([], "no reason was given"),
        (["", None], "no reason was given"),
    ],
)  # fmt: skip
def test_a_stack_is_told_in_its_last_line(messages, said):
    """Serve's message holds a whole stack; the terminal gets the line that says why, our own errors without a class."""
    assert failure(messages) == said


@given(st.lists(st.text(), max_size=4))
def test_a_failure_is_always_one_short_line(messages):
    """Whatever Serve says."""
    line = failure(messages)

    assert 0 < len(line) <= _WORDS_MAX
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("keyed", [True, False])
def test_what_a_client_needs_can_be_pasted(keyed):
    """Two lines for a shell; where there are keys, none is shown."""
    place = ServerPlace(url="http://127.0.0.1:8000", config="c.yaml", log="/tmp/log", keyed=keyed)
    text = "\n".join(ready_lines(place, RunStatus(ray_session="/tmp/ray/s"), 12.3))

    assert "export OPENAI_BASE_URL=http://127.0.0.1:8000/v1" in text
    assert ("export OPENAI_API_KEY=unused" in text) == (not keyed)
    assert "control room: http://127.0.0.1:8000/" in text
    assert "/tmp/log" in text
    assert "/tmp/ray/s/logs" in text
