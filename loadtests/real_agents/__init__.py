"""Agents as they are published, each in a venv of its own, against this server with tiers that loop.

`python -m loadtests.real_agents [--cache DIR] [--only NAME]` installs them (`requirements/`, pinned), starts the server
on scripted tiers that never get anywhere (`trials`), lets each agent work on a small task with nothing configured but
base URL, key and model (`agents`), and looks on from a proxy between the two (`tap`). A trial is passed when the agent
was nudged, and then ended, within `LAPS_MAX` laps (`verdicts`). Two runs of aider at once must be two sessions.

What must never happen: a process that outlives its trial, or a lap that isn't in the record.
"""
