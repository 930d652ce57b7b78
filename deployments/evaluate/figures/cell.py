"""The name of a cell: what was run, on which variant of the server, of which model. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to do. `name` is a case's number, a fixture's name, or a length and its repetition."""

    variant: str
    kind: str
    model: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.variant}/{self.kind}/{self.model}/{self.name}"

    @classmethod
    def read_key(cls, key: str) -> Cell:
        """Read a key. Only a model's name has slashes, as many as it likes."""
        variant, kind, rest = key.split("/", 2)
        model, _, name = rest.rpartition("/")
        return cls(variant, kind, model, name)
