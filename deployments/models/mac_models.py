"""The models of `auto` on Apple silicon: what each is, and which three a machine of so much memory gets.

All are 4-bit conversions of the community on the hub. Which they are, and why:

- `fast` answers most requests, so it writes no reasoning where the memory allows one that does without.
- `standard` is the best agent that fits: from 48 GiB on the coder models, which call tools and write no reasoning.
- `longctx` has the longest context. Qwen3.5 and 3.6 keep a full cache for every fourth layer only (`cache`: hybrid), so
  a long prompt costs them a quarter; such a cache can't be cut back, and the engine keeps checkpoints instead. All the
  others keep a plain one, which mlx-lm batches and cuts exactly.

The three of a row are three models (a tier is a process: two tiers with one model would hold it twice), and fit
together into half of the smallest memory that the row is for.

Names, commits and sizes were looked up in November 2026 in public files that use them; a commit is given where several
independent ones agree, else the branch `main`, whose owner can change what it means. Nothing here was downloaded.
`tools` is mlx-lm's name for the form in which the model writes its calls; the tier reads it from the template itself.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "ROWS", "MacModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MacModel:
    """One model. `thinks`: it reasons before it answers, unless it is told not to."""

    repository: str
    revision: str
    weight_mb: int
    context_tokens: int
    tools: str
    thinks: bool
    cache: str = "plain"
    license: str = "Apache-2.0"

    @property
    def source(self) -> str:
        """As the configuration writes it."""
        return f"hf:mlx-community/{self.repository}@{self.revision}"


_TINY = MacModel(
    repository="Qwen3-0.6B-4bit",
    revision="73e3e38d981303bc594367cd910ea6eb48349da8",
    weight_mb=350,
    context_tokens=40_960,
    tools="json_tools",
    thinks=True,
)
_SMALL = MacModel(
    repository="Qwen3-1.7B-4bit",
    revision="3b1b1768f8f8cf8351c712464f906e86c2b8269e",
    weight_mb=980,
    context_tokens=40_960,
    tools="json_tools",
    thinks=True,
)
_LIGHT = MacModel(
    repository="Qwen3-4B-Instruct-2507-4bit",
    revision="50d427756c6b1b2fe0c0a10f67fbda1fc8e82c1b",
    weight_mb=2_300,
    context_tokens=262_144,
    tools="json_tools",
    thinks=False,
)
_MIDDLE = MacModel(
    repository="Qwen3-8B-4bit",
    revision="545dc4251c05440727734bcd94334791f6ab0192",
    weight_mb=4_620,
    context_tokens=40_960,
    tools="json_tools",
    thinks=True,
)
_LONG = MacModel(
    repository="Qwen3.5-9B-MLX-4bit",
    revision="938d8919941c6e7efd3c7150eff7fe9d12afa631",
    weight_mb=5_950,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    cache="hybrid",
)
_BROAD = MacModel(
    repository="Qwen3-14B-4bit",
    revision="main",
    weight_mb=8_310,
    context_tokens=40_960,
    tools="json_tools",
    thinks=True,
)
_CODER = MacModel(
    repository="Qwen3-Coder-30B-A3B-Instruct-4bit",
    revision="6e302ea604ad9ab206367e2c501d1571023e7b6d",
    weight_mb=17_200,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=False,
)
_LONGER = MacModel(
    repository="Qwen3.6-35B-A3B-4bit",
    revision="38740b847e4cb78f352aba30aa41c76e08e6eb46",
    weight_mb=20_400,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    cache="hybrid",
)
_CODER_NEXT = MacModel(
    repository="Qwen3-Coder-Next-4bit",
    revision="7b9321eabb85ce79625cac3f61ea691e4ea984b5",
    weight_mb=44_800,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=False,
    cache="hybrid",
)
_LONGEST = MacModel(
    repository="Qwen3.5-122B-A10B-4bit",
    revision="main",
    weight_mb=69_600,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    cache="hybrid",
)
_GREAT = MacModel(
    repository="Qwen3-235B-A22B-Instruct-2507-4bit",
    revision="main",
    weight_mb=132_300,
    context_tokens=262_144,
    tools="json_tools",
    thinks=False,
)

# From this many GiB of memory on: fast, standard, longctx.
ROWS: tuple[tuple[int, tuple[MacModel, MacModel, MacModel]], ...] = (
    (512, (_CODER, _GREAT, _LONGEST)),
    (256, (_CODER, _CODER_NEXT, _LONGEST)),
    (192, (_CODER, _CODER_NEXT, _LONGER)),
    (128, (_LIGHT, _CODER_NEXT, _LONGER)),
    (96, (_LIGHT, _CODER, _LONGER)),
    (48, (_LIGHT, _CODER, _LONG)),
    (32, (_LIGHT, _BROAD, _LONG)),
    (24, (_LIGHT, _MIDDLE, _LONG)),
    (16, (_SMALL, _MIDDLE, _LIGHT)),
    (0, (_TINY, _SMALL, _LIGHT)),
)
MODELS: tuple[MacModel, ...] = tuple({model.source: model for _, models in ROWS for model in models}.values())
