"""What can be completed: the commands, their options, and what each of them takes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROGRAM", "Argument", "Command"]

PROGRAM = "mlx-stack-serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An option, or where it has no `names`, what stands by itself. `takes`: a word follows the option; it is one of
    `words`, or a file, or what the server is asked for (`asks`), or anything."""

    names: tuple[str, ...]
    means: str
    help: str
    takes: bool
    optional: bool
    words: tuple[str, ...] = ()
    file: bool = False
    asks: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One of the program's commands."""

    name: str
    help: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """All of its options' names."""
        return tuple(name for one in self.arguments for name in one.names)

    @property
    def own(self) -> tuple[Argument, ...]:
        """What stands by itself."""
        return tuple(one for one in self.arguments if not one.names)
