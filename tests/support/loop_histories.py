"""Histories of calls and results that Hypothesis draws for the laws of loop detection."""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from reliability.loops import SeenCall, Turn

law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
names = st.sampled_from(["read", "write", "search", "job_poll"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("abé ", max_size=4))
objects = st.dictionaries(st.text("abc", min_size=1, max_size=2), scalars, max_size=3)
results = st.sampled_from(["", "ok", "Error: no such thing", "[]", '{"n": 1}', '{"n": 2}', "line 1", "line 2"])
calls = st.builds(lambda name, args: SeenCall(name, json.dumps(args)), names, objects)
acting = st.builds(lambda call, result: Turn((call,), (result,)), calls, results)
speaking = st.builds(lambda text: Turn(text=text), st.sampled_from(["", "Hm.", "I will look again."]))
histories = st.lists(st.one_of(acting, acting, speaking), max_size=14).map(tuple)
steps = st.lists(acting, min_size=1, max_size=4, unique_by=lambda turn: (turn.calls, turn.results))


def asks(turn: Turn) -> Turn:
    return Turn(turn.calls, (None,) * len(turn.calls))
