"""The admission request: all that is known of a call that wants to run.

`drive` makes it, a Router replica's link carries it to the state actor, the rules of this package decide by it, and the
journal keeps it with the grant that it was given: one type on the whole way.
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.memory.pressure import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """One call that wants to run. `prompt_tokens` is an upper estimate; `output_tokens` None: none is named.

    `extra`: its request has called this tier before. `fallback`: it has called others before, but not this one.
    `cheap`: the tier is the one that a session goes on with under `escalate`. `local`: the call stays on the machine
    and costs no money.
    """

    tier: str
    key: str
    session: str
    prompt_tokens: int
    output_tokens: int | None = None
    tools: int = 0
    extra: bool = False
    fallback: bool = False
    cheap: bool = False
    local: bool = True
    level: Level = Level.UNKNOWN
    sustained_ns: int = 0
    hold_ns: int | None = None
