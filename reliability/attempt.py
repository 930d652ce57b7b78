"""What is known of one call to one tier once it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reliability.prefix import LostPrefix
from reliability.thinking import Thinking
from reliability.types import Fault, Flaw, Usage


@dataclass(frozen=True, slots=True)
class Confidence:
    """What the calls of an answer showed of themselves (`reliability.confidence`). `likely`: how likely they are
    right, `unwanted`: how likely no tool was wanted, 0 to 1; None where that isn't known."""

    signs: Mapping[str, float]
    likely: float | None = None
    unwanted: float | None = None


UNMEASURED = Confidence({})
_DETAIL_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Leeway:
    """What is said against an answer that may be right all the same (`said`, its digest). `suspected`: the tier is
    believed that says it again; else another one is."""

    said: str
    suspected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The record of one call to one tier: with neither fault nor flaw it is good. `ran` is False where nothing was
    generated, since the tier said at once that it can't. `text_out` and `calls_out` say whether text or calls of this
    attempt have left for the client (the two commit points); `calls_held` whether it had calls at all, be it one in
    which it broke off. `cancelled`: the client left while it ran, which says nothing of the tier. `hard_stop`: a budget
    rejects every tier. `granted` is False where it ran without a grant, since nobody answered and the tier costs
    nothing. `reported` is what the tier reported that it had cost, where that can't be; then `usage` is what is booked
    in its place. `started_ns`: the moment at which the tier was called; None where it wasn't. `native_calls`: how many
    of its calls came as calls, and not in the text. `lost`: as of `Started`. `seam`: how many characters stood before
    the client where it went on with another attempt's text; None where it began anew. `thinking`: its thought; None
    where it had none. `loads`: the tools whose definitions it asks the server for; None where it is an answer for the
    client. `leeway`: of a flawed answer that may still be delivered; None where it never is."""

    tier: str
    ran: bool
    fault: Fault | None = None
    flaw: Flaw | None = None
    detail: str = ""
    status: int | None = None
    param: str | None = None
    retry_after_s: float | None = None
    usage: Usage | None = None
    started_ns: int | None = None
    ttft_ns: int | None = None
    elapsed_ns: int = 0
    text_out: bool = False
    calls_out: bool = False
    calls_held: bool = False
    cancelled: bool = False
    hard_stop: bool = False
    granted: bool = True
    reported: Usage | None = None
    native_calls: int = 0
    lost: LostPrefix | None = None
    seam: int | None = None
    confidence: Confidence = UNMEASURED
    thinking: Thinking | None = None
    loads: tuple[str, ...] | None = None
    leeway: Leeway | None = None

    def __post_init__(self) -> None:
        """Cut the detail: it stands in the report and in errors, and may quote what a client or an upstream sent."""
        if len(self.detail) > _DETAIL_CHARS_MAX:
            object.__setattr__(self, "detail", self.detail[:_DETAIL_CHARS_MAX])

    @property
    def good(self) -> bool:
        """True where the attempt ended in an answer that may be delivered."""
        return self.fault is None and self.flaw is None and self.loads is None and not self.cancelled
