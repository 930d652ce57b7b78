"""Laws are about values: how long an example takes on a busy machine is none of them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
