"""What `mlx-stack-serve evaluate` takes. It stands apart from what the command does, which comes with Ray and a second
of imports: every command and every Tab would wait for it, since the parser is made of all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["AT_ONCE", "add_arguments"]

OUT = Path("evaluation")
AT_ONCE = 8


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    command.add_argument("config", nargs="?", type=Path, help="the configuration file, of which servers are started")
    command.add_argument("--url", help="measure this running server as it is, ours or any OpenAI-compatible one")
    command.add_argument("--model", action="append", default=[], help="with --url: a model to measure; may be repeated")
    command.add_argument("--out", type=Path, default=OUT, help=f"the folder of the evaluation (default: {OUT})")
    command.add_argument("--budget-minutes", type=float, default=20.0, help="how long it may take (default: 20)")
    command.add_argument("--cases", type=int, default=24, help="tool-call cases for each model (default: 24)")
    command.add_argument(
        "--at-once",
        type=int,
        help=f"cases that run at once, so that a batch shares its steps (default: {AT_ONCE}, with --url 1)",
    )
    command.add_argument("--seed", type=int, default=1, help="of cases and fixtures (default: 1)")
    command.add_argument("--fresh", action="store_true", help="begin anew, and forget the finished cells in the folder")
    command.add_argument(
        "--cloud", action="store_true", help="ask tiers that aren't on this machine, too; it costs money"
    )
    command.add_argument("--compare", type=Path, metavar="OLD.json", help="say what is worse than in an older report")
    command.add_argument("--apply", action="store_true", help="show the learned chain as a change, and ask to write it")
    command.add_argument("--yes", action="store_true", help="with --apply: write it without asking")
