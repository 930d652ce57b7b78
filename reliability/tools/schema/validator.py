"""JSON Schema, draft 2020-12: a value against a schema, in counted steps.

One walk, keyword by keyword (`keywords.py`), over a schema that was normalised and checked before. jsonschema is right,
and tests hold this module against it, but it has no bound (docs/decisions/020-json-schema-in-counted-steps.md). Each
(schema, value) pair is judged once (`Run.known`), and every visit is a step.

Invariants: no verdict depends on how many steps were left, other than `OutOfSteps`; no key or pattern of the client
reaches Python's `re`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.steps import Steps
from reliability.tools.schema.complaint import ERRORS_MAX, Complaint, Rule, SchemaRun
from reliability.tools.schema.keywords import RULES, prepare
from reliability.tools.schema.references import anchors_of, resolve

UNBOUNDED = 1 << 62


class Validator:
    """One schema, ready. Shared by threads: what it keeps is the same whoever computes it."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._anchors = anchors_of(schema)
        self._rules: dict[int, list[tuple[Any, Rule, Any]]] = {}
        self._targets: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Validator, (self.schema,)

    def is_valid(self, value: Any, steps: Steps | None = None) -> bool:
        """Return whether nothing is wrong. Raises `OutOfSteps`."""
        return not self.complaints(value, SchemaRun(steps or Steps(UNBOUNDED)))

    def complaints(self, value: Any, run: SchemaRun) -> tuple[Complaint, ...]:
        """Return what is wrong, at most `ERRORS_MAX` things of it. Raises `OutOfSteps`, RecursionError."""
        return tuple(self.judge(self.schema, value, run))

    def judge(self, node: Any, value: Any, run: SchemaRun) -> Sequence[Complaint]:
        """Judge a value against one node of the schema."""
        steps = run.steps
        steps.spend()
        if node is True or node is False:
            return () if node else (Complaint("false", False, value),)
        kept = type(value) is dict or type(value) is list
        if kept and (known := run.known.get((id(node), id(value)))) is not None:
            return known[1]
        rules = self._rules.get(id(node))
        if rules is None:
            rules = [(*RULES[key], prepare(key, wanted)) for key, wanted in node.items() if key in RULES]
            self._rules[id(node)] = rules
        found: list[Complaint] = []
        for kind, rule, wanted in rules:
            if isinstance(value, kind) and (wrong := rule(self, wanted, value, node, run)):
                found += wrong
        del found[ERRORS_MAX:]
        if kept:
            run.known[id(node), id(value)] = value, found
        return found

    def target(self, reference: str) -> Any:
        """Return the node that a reference means."""
        if reference not in self._targets:
            self._targets[reference] = resolve(self.schema, reference, self._anchors)
        return self._targets[reference]
