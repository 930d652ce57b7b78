"""The models of `auto` on Apple silicon: what each is, and which ones a machine of so much memory gets.

All are 4-bit conversions of the community on the hub. Which they are, and why:

- `fast` is fetched before the server answers and answers most requests: at most 5 GB, and no reasoning by default.
- `standard` is the best agent that fits: from 36 GiB on the coder models, which call tools and write no reasoning.
- `longctx` has the longest context. Below 48 GiB there is no room for a third model, and `standard` is as long.

Qwen3.5, Qwen3.6 and Coder-Next keep keys and values in every fourth layer only (`cache`: hybrid), so a long prompt
costs them a quarter; such a cache can't be cut back, and the engine keeps checkpoints instead. The others keep a plain
one, which mlx-lm batches and cuts exactly.

The models of a row are different ones (a tier is a process: two tiers with one model would hold it twice). Together,
each with 32,768 tokens of context, they fit into what Metal recommends on the smallest machine of the row
(`tests/mac/test_auto_table.py` prints the figures).

Names, commits and sizes were looked up in November 2026 in public files that use them; a commit is given where several
independent ones agree, else the branch `main`, whose owner can change what it means. Nothing here was downloaded. The
shapes are those of the models' published config.json; a test compares them with what mlx-lm's classes keep.
`tools` is mlx-lm's name for the form in which the model writes its calls; the tier reads it from the template itself.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "ROWS", "MacModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MacModel:
    """One model. `thinks`: it reasons before it answers, unless it is told not to. `heads` are those of the queries,
    `token_bytes` what all layers keep of a token in 16 bits, `state_bytes` what the recurrent ones keep in any case."""

    repository: str
    revision: str
    weight_mb: int
    context_tokens: int
    tools: str
    thinks: bool
    heads: int
    head_dim: int
    token_bytes: int
    state_bytes: int = 0
    cache: str = "plain"
    license: str = "Apache-2.0"

    @property
    def source(self) -> str:
        """As the configuration writes it."""
        return f"hf:mlx-community/{self.repository}@{self.revision}"


# No reasoning by default, unlike its larger sisters.
_TINY = MacModel(
    repository="Qwen3.5-2B-4bit",
    revision="674aaa7240b91e8012fcad5d791b7dfe5ba90207",
    weight_mb=1_060,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=False,
    heads=8,
    head_dim=256,
    token_bytes=12_288,
    state_bytes=19_537_920,
    cache="hybrid",
)
_LIGHT = MacModel(
    repository="Qwen3-4B-Instruct-2507-4bit",
    revision="50d427756c6b1b2fe0c0a10f67fbda1fc8e82c1b",
    weight_mb=2_300,
    context_tokens=262_144,
    tools="json_tools",
    thinks=False,
    heads=32,
    head_dim=128,
    token_bytes=147_456,
)
_LONG = MacModel(
    repository="Qwen3.5-9B-MLX-4bit",
    revision="938d8919941c6e7efd3c7150eff7fe9d12afa631",
    weight_mb=5_950,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    heads=16,
    head_dim=256,
    token_bytes=32_768,
    state_bytes=51_511_296,
    cache="hybrid",
)
_CODER = MacModel(
    repository="Qwen3-Coder-30B-A3B-Instruct-4bit",
    revision="6e302ea604ad9ab206367e2c501d1571023e7b6d",
    weight_mb=17_200,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=False,
    heads=32,
    head_dim=128,
    token_bytes=98_304,
)
_LONGER = MacModel(
    repository="Qwen3.6-35B-A3B-4bit",
    revision="38740b847e4cb78f352aba30aa41c76e08e6eb46",
    weight_mb=20_400,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    heads=16,
    head_dim=256,
    token_bytes=20_480,
    state_bytes=64_389_120,
    cache="hybrid",
)
_CODER_NEXT = MacModel(
    repository="Qwen3-Coder-Next-4bit",
    revision="7b9321eabb85ce79625cac3f61ea691e4ea984b5",
    weight_mb=44_800,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=False,
    heads=16,
    head_dim=256,
    token_bytes=24_576,
    state_bytes=77_266_944,
    cache="hybrid",
)
_LONGEST = MacModel(
    repository="Qwen3.5-122B-A10B-4bit",
    revision="main",
    weight_mb=69_600,
    context_tokens=262_144,
    tools="qwen3_coder",
    thinks=True,
    heads=32,
    head_dim=256,
    token_bytes=24_576,
    state_bytes=153_649_152,
    cache="hybrid",
)
_GREAT = MacModel(
    repository="Qwen3-235B-A22B-Instruct-2507-4bit",
    revision="main",
    weight_mb=132_300,
    context_tokens=262_144,
    tools="json_tools",
    thinks=False,
    heads=64,
    head_dim=128,
    token_bytes=192_512,
)

# From this many GiB of memory on: fast, standard, longctx; None where the others leave no room for one.
ROWS: tuple[tuple[int, tuple[MacModel | None, ...]], ...] = (
    (512, (_LIGHT, _GREAT, _LONGEST)),
    (192, (_LIGHT, _CODER_NEXT, _LONGEST)),
    (128, (_LIGHT, _CODER_NEXT, _LONGER)),
    (96, (_LIGHT, _CODER, _LONGER)),
    (48, (_LIGHT, _CODER, _LONG)),
    (36, (_LIGHT, _CODER, None)),
    (24, (_LIGHT, _LONG, None)),
    (16, (_TINY, _LONG, None)),
    (0, (_TINY, None, None)),
)
MODELS: tuple[MacModel, ...] = tuple({one.source: one for _, models in ROWS for one in models if one}.values())
