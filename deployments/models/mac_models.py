"""The models of `auto` on Apple silicon: what each is, and which ones a machine of so much memory gets.

All are 4-bit conversions of the community on the hub. Which they are, and why:

- `fast` is fetched before the server answers and answers most requests: at most 5 GB, and no reasoning by default.
- `standard` is the best agent that fits: from 36 GiB on the coder models, which call tools and write no reasoning.
- `longctx` has the longest context. Below 48 GiB there is no room for a third model, and `standard` is as long.

A hybrid model keeps keys and values in every fourth layer only, so a long prompt costs it a quarter; its cache can't be
cut back, and the engine keeps checkpoints instead. mlx-lm batches and cuts a plain cache exactly.

The models of a row differ (two tiers with one model would hold it twice) and together fit into what Metal recommends on
the smallest machine of the row, each with 32,768 tokens of context (`tests/mac/test_auto_table.py` prints the figures).

Names, commits and sizes were looked up in November 2026 in public files that use them; a commit is given where several
independent ones agree, else the branch `main`, whose owner can change it. Nothing here was downloaded. The shapes are
those of the published config.json; a test compares them with mlx-lm's classes. `tools` is mlx-lm's name for the form of
the model's calls; the tier reads it from the template itself.
"""

from __future__ import annotations

from typing import NamedTuple

_CONTEXT_TOKENS = 262_144  # of each of them


class MacModel(NamedTuple):
    """One model. `thinks`: it reasons before it answers, unless it is told not to. `heads` are those of the queries,
    `token_bytes` what all layers keep of a token in 16 bits, `state_bytes` what the recurrent ones keep in any case."""

    repository: str
    revision: str
    weight_mb: int
    tools: str
    thinks: bool
    heads: int
    head_dim: int
    token_bytes: int
    state_bytes: int
    context_tokens: int = _CONTEXT_TOKENS
    license: str = "Apache-2.0"

    @property
    def source(self) -> str:
        """As the configuration writes it."""
        return f"hf:mlx-community/{self.repository}@{self.revision}"

    @property
    def cache(self) -> str:
        """How it keeps keys and values."""
        return "hybrid" if self.state_bytes else "plain"


_TINY_COMMIT = "674aaa7240b91e8012fcad5d791b7dfe5ba90207"
_LIGHT_COMMIT = "50d427756c6b1b2fe0c0a10f67fbda1fc8e82c1b"
_LONG_COMMIT = "938d8919941c6e7efd3c7150eff7fe9d12afa631"
_CODER_COMMIT = "6e302ea604ad9ab206367e2c501d1571023e7b6d"
_LONGER_COMMIT = "38740b847e4cb78f352aba30aa41c76e08e6eb46"
_NEXT_COMMIT = "7b9321eabb85ce79625cac3f61ea691e4ea984b5"
_INSTRUCT, _GREAT_NAME = "Qwen3-4B-Instruct-2507-4bit", "Qwen3-235B-A22B-Instruct-2507-4bit"
_CODER_NAME = "Qwen3-Coder-30B-A3B-Instruct-4bit"
# _TINY doesn't reason by default, unlike its larger sisters.
# fmt: off
_TINY       = MacModel("Qwen3.5-2B-4bit", _TINY_COMMIT, 1_060, "qwen3_coder", False, 8, 256, 12_288, 19_537_920)
_LIGHT      = MacModel(_INSTRUCT, _LIGHT_COMMIT, 2_300, "json_tools", False, 32, 128, 147_456, 0)
_LONG       = MacModel("Qwen3.5-9B-MLX-4bit", _LONG_COMMIT, 5_950, "qwen3_coder", True, 16, 256, 32_768, 51_511_296)
_CODER      = MacModel(_CODER_NAME, _CODER_COMMIT, 17_200, "qwen3_coder", False, 32, 128, 98_304, 0)
_LONGER     = MacModel("Qwen3.6-35B-A3B-4bit", _LONGER_COMMIT, 20_400, "qwen3_coder", True, 16, 256, 20_480, 64_389_120)
_CODER_NEXT = MacModel("Qwen3-Coder-Next-4bit", _NEXT_COMMIT, 44_800, "qwen3_coder", False, 16, 256, 24_576, 77_266_944)
_LONGEST    = MacModel("Qwen3.5-122B-A10B-4bit", "main", 69_600, "qwen3_coder", True, 32, 256, 24_576, 153_649_152)
_GREAT      = MacModel(_GREAT_NAME, "main", 132_300, "json_tools", False, 64, 128, 192_512, 0)
# fmt: on

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
