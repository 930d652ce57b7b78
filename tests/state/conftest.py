"""Laws are about values: how long an example takes on a busy machine is none of them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("state", deadline=None, max_examples=30, stateful_step_count=25)
settings.load_profile("state")
