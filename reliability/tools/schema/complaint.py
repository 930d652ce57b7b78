"""What rules (`keywords.py`) and their validator share: complaints, the state of a judgement, the type of a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from reliability.steps import Steps

ERRORS_MAX = 200
KEYS_MAX = 1_000  # that one complaint names

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Complaint:
    """One thing that is wrong. `wanted` is what stands behind `keyword`, `got` the value at `path`, `keys` the members
    that are meant, `context` what each of the allowed forms had to say, with paths from here on."""

    keyword: str
    wanted: Any
    got: Any
    path: Path = ()
    keys: tuple[str, ...] = ()
    context: tuple[Complaint, ...] = ()


class SchemaRun:
    """What one judgement knows: its steps, and what it has judged. Values are kept, so that their ids stay theirs."""

    __slots__ = ("known", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.known: dict[tuple[int, int], tuple[Any, Sequence[Complaint]]] = {}


class Judge(Protocol):
    """What a rule needs of the validator that calls it (`validator.py`)."""

    def judge(self, node: Any, value: Any, run: SchemaRun) -> Sequence[Complaint]:
        """Judge a value against another node of the schema."""
        ...

    def target(self, reference: str) -> Any:
        """Return the node that a reference means."""
        ...


# A keyword's rule: (the validator, what stands behind the keyword, value, the whole schema node, run) -> complaints
Rule = Callable[["Judge", Any, Any, Mapping[str, Any], SchemaRun], Sequence[Complaint]]


def prefix_paths(part: str | int, wrong: Sequence[Complaint], run: SchemaRun) -> list[Complaint]:
    """Return complaints of a member or an item, with paths from its owner."""
    run.steps.spend(len(wrong))
    return [replace(one, path=(part, *one.path)) for one in wrong]
