"""The table of docs/models.md, a line for each family: what families.py expects, and what the call formats know."""

from deployments.tiers.mlx.decoding.generators import Sharing
from reliability.tools.format_reasoning import REASONING_OPEN
from reliability.tools.formats import CALL_FORMATS, OPENER
from tests.zoo.families import FAMILIES, Family

HEADS = (
    "family", "`model_type`", "engine", "batching", "prompt cache", "disk", "draft tokens", "grammar", "calls",
    "reasoning", "images", "notes",
)  # fmt: skip


SHARED = {Sharing.ALL: "together", Sharing.DECODING: "decoding only", Sharing.NONE: "one request at a time"}


def build_table() -> str:
    rows = [HEADS, ["---"] * len(HEADS), *map(_describe, FAMILIES)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _describe(family: Family) -> list[str]:
    configs = family.configs.split(", ")
    reuse = "any prefix" if family.cuts else "checkpoints"
    return [
        family.name,
        ", ".join(f"`{name}`" for name in dict.fromkeys(config.partition(" ")[0] for config in configs)),
        "own" if family.plain or family.sharing is Sharing.NONE else "mlx-lm",
        SHARED[family.sharing],
        reuse,
        reuse if family.stored else "no",
        "yes" if family.drafts else "no",
        "yes",
        _show(family.call, read=bool(OPENER.search(family.call)) or _is_shown(family.call)),
        _show(family.reasoning, read=bool(REASONING_OPEN.search(family.reasoning))),
        "no",
        family.note,
    ]


def _is_shown(call: str) -> bool:
    return any(call in example for row in CALL_FORMATS for example in row.examples)


def _show(mark: str, *, read: bool) -> str:
    """Show how a call or reasoning opens, in a cell."""
    text = mark.strip().replace("\n", " ").replace("|", "\\|")
    quoted = f"`` {text} ``" if "`" in mark else f"`{text}`"
    return f"{quoted}{'' if read else ' (not read)'}" if mark else "–"
