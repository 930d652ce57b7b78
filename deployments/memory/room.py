"""What one replica of a tier may use of a GPU's working set: its need, and an even share of what all needs leave over.

The parts never add up to more than the working set. Where the needs alone are more, no replica has more than its need,
and the leases decide which tiers are awake together. A tier whose need isn't known has what the others leave. Without a
GPU there is no room to share out (None): each tier looks at the machine's free memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from deployments.memory.plan import MemoryPlan
from deployments.memory.sensors.computing import CRITICAL, Computing, find_computing, find_level, find_working_set

_FUSED_SIZES = frozenset({64, 80, 128})
_CUDNN_SIZE_MAX = 128
FORCED_SIZES = frozenset({192, 256})
SCORES_BYTES_MAX = 512 << 20
_FLOAT_BYTES = 4


def estimate_scores_bytes(
    heads: int, head_dim: int, step_tokens: int, computing: Computing, *, forced: bool
) -> tuple[int, int]:
    """Estimate what the scores of one step take: bytes in any case, and bytes for each token of the context. `forced`:
    Metal's fused kernels that must be asked for are used."""
    if computing is Computing.CPU:  # before and after the softmax
        return 0, 2 * _FLOAT_BYTES * heads * step_tokens
    if computing is Computing.CUDA:
        fused = head_dim <= _CUDNN_SIZE_MAX and head_dim % 8 == 0
        return 0, 0 if fused else _FLOAT_BYTES * heads * step_tokens
    if head_dim in _FUSED_SIZES:
        return 0, 0
    if forced and head_dim in FORCED_SIZES:
        return SCORES_BYTES_MAX, 0
    return 0, _FLOAT_BYTES * heads * step_tokens


# The context that an agent needs: the first prompt of Claude Code has 11,648 tokens, and the conversation grows.
AGENT_TOKENS = 32_768
_REPLICAS_UNKNOWN = 3  # where nothing is known of other tiers, as many as in the default chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """`need_bytes`: what the replica's own plan says, None: unknown; `others_bytes`: what all others need; `replicas`:
    how many there may be."""

    working_set_bytes: int
    need_bytes: int | None = None
    others_bytes: int = 0
    replicas: int = 1

    @property
    def most_bytes(self) -> int:
        """What the others leave."""
        return max(0, self.working_set_bytes - self.others_bytes)

    def share_bytes(self, measured_bytes: int = 0) -> int:
        """Return this replica's part. `measured_bytes`: its need, once it is known from the model itself."""
        need_bytes = max(measured_bytes, self.need_bytes or 0)
        return min(self.most_bytes, need_bytes + max(0, self.most_bytes - need_bytes) // self.replicas)


def find_room(plan: MemoryPlan, tier: str) -> Room | None:
    """Find the room of one replica of the tier on this machine; None where memory isn't shared out."""
    if (usable_bytes := find_usable(plan)) is None:
        return None
    local = [need for need in plan.needs if need.local and (need.replica_bytes or need.name == tier)]
    own_bytes = next((need.replica_bytes for need in local if need.name == tier), None)
    replicas = sum(max(1, need.replicas_max) for need in local)
    others_bytes = sum((need.replica_bytes or 0) * max(1, need.replicas_max) for need in local) - (own_bytes or 0)
    if own_bytes is not None and own_bytes + others_bytes > usable_bytes:
        others_bytes = max(0, usable_bytes - own_bytes)  # they are never all awake: the leases see to that
    return Room(
        working_set_bytes=usable_bytes, need_bytes=own_bytes, others_bytes=others_bytes, replicas=max(1, replicas)
    )


def find_usable(plan: MemoryPlan) -> int | None:
    """Find how many bytes of the GPU's memory the tiers may have together: the node's budget within the working set."""
    working_set_bytes = find_working_set()
    if working_set_bytes is None:
        return None
    budget_bytes = plan.settings.budget_of(psutil.virtual_memory().total, working_set_bytes)
    return min(working_set_bytes, working_set_bytes if budget_bytes is None else budget_bytes)


def find_room_alone() -> Room | None:
    """Find the room of a replica that knows of no other."""
    if (working_set_bytes := find_working_set()) is None:
        return None
    return Room(working_set_bytes=working_set_bytes, replicas=_REPLICAS_UNKNOWN)


def explain_lack(needed_bytes: int, room: Room) -> str:
    """Explain why a model that needs so many bytes can't be loaded now; empty where it can."""
    if find_level() == CRITICAL:
        return "macOS is critically short of memory: nothing is loaded"
    if needed_bytes <= room.most_bytes:
        return ""
    return (
        f"too little memory: the model needs {_gib(needed_bytes)} GiB; of the {_gib(room.working_set_bytes)} GiB "
        f"{find_computing().owner} the other tiers need {_gib(room.others_bytes)}. Name a smaller model, or leave a "
        "tier out"
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f}"
