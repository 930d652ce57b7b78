"""What guesses from the prompt are worth: `python -m loadtests.lookup_bench [--model auto|SOURCE] [--tokens 192]`.

    edits    ten edits, one after another: tokens a second with and without guesses, and whether the texts are the same
    prose    four questions without anything to copy, the same way
    four     four edits at once

One engine thread, one copy of the weights, two batches: one that guesses and one that doesn't. Each has read the prompt
before, so what is measured is decoding, from the first token to the last, both sides by turns. An answer is cut after
`--tokens`. `mlx_bench` puts the figures into its table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from deployments.models.sources import CODER_SMALL, parse_source
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from loadtests.edit_tasks import PROSE, build_tasks
from loadtests.mlx_thread import print_and_exit
from loadtests.table import Figure
from loadtests.turns import Turns

_ROWS = 4


class Pair:
    """A model in memory, and two batches on it. One thread only."""

    def __init__(self, source: str, threads: int) -> None:
        self.loaded: Loaded = load(
            parse_source(source), cache_dir=None, context_tokens=None, blas_threads=threads, say=lambda _: None
        )
        self.batches = {drafts: self._build(drafts) for drafts in (True, False)}

    def _build(self, drafts: bool) -> Scheduler:
        made = Scheduler(self.loaded.model, self.loaded.tokenizer, running_max=_ROWS, label="bench", drafts=drafts)
        prepare_batch(made, self.loaded)
        return made

    def encode(self, text: str) -> list[int]:
        """Encode a question as the chat template has it."""
        tokenizer = self.loaded.tokenizer
        rendered = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        tokens: list[int] = tokenizer.encode(rendered, add_special_tokens=False)
        return tokens

    def answer(self, drafts: bool, prompts: Sequence[list[int]], max_tokens: int) -> tuple[list[list[int]], float]:
        """Answer these at once, greedily; return the tokens of each, and tokens a second once all had one."""
        batch = self.batches[drafts]
        states = []
        for number, prompt in enumerate(prompts):
            batch.add(
                number,
                EngineJob(prompt=prompt, max_tokens=max_tokens, sink=_ignore),
            )
            states.append(batch._sequences[number])
        while any(not one.tokens for one in states):
            batch.step()
        began_s, before = time.perf_counter(), sum(len(one.tokens) for one in states)
        while batch:
            batch.step()
        seconds = time.perf_counter() - began_s
        return [list(one.tokens) for one in states], (sum(len(one.tokens) for one in states) - before) / seconds


def _ignore(_: Any) -> None:
    pass


def compare(pair: Pair, texts: Sequence[str], max_tokens: int) -> tuple[float, float, bool]:
    """Ask these at once, with guesses and without; return tokens a second of both, and whether the texts are the same.

    The prompts are read before.
    """
    prompts = [pair.encode(text) for text in texts]
    sides = {}
    for drafts in (True, False):
        pair.answer(drafts, prompts, 1)
        sides[drafts] = pair.answer(drafts, prompts, max_tokens)
    words = f"    {sum(map(len, sides[True][0]))} tokens, {sides[True][1]:.1f} against {sides[False][1]:.1f} a second"
    print(words, file=sys.stderr, flush=True)
    return sides[True][1], sides[False][1], sides[True][0] == sides[False][0]


def bench_lookup(turns: Turns, source: str = CODER_SMALL, max_tokens: int = 192, threads: int = 2) -> Iterator[Figure]:
    """Yield the three figures. `turns` bounds the seconds that all groups of a kind may take."""
    pair = Pair(source, threads)
    edits = [task.text for task in build_tasks()]
    kinds = (
        ("ten edits, one by one, guesses on against off", [[one] for one in edits], 3.0),
        ("prose, one by one, guesses on against off", [[one] for one in PROSE], 0.97),
        ("four edits at once, guesses on against off", [edits[3:7]], 1.5),
    )
    for what, groups, least in kinds:
        own = Turns(len(groups), turns.seconds)
        found = [compare(pair, groups[number], max_tokens) for number in own.rounds(what)]
        ratios = tuple(on / off for on, off, _ in found)
        same = sum(equal for *_, equal in found)
        on, off = (statistics.median(side) for side in list(zip(*found, strict=True))[:2])
        detail = f"{on:.1f} against {off:.1f} tokens a second; the same text in {same} of {len(found)}"
        yield Figure(what, detail, statistics.median(ratios), least, rounds=ratios)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.lookup_bench")
    parser.add_argument("--model", default=CODER_SMALL, help="a model source (default: %(default).40s…)")
    parser.add_argument("--tokens", type=int, default=192, help="where answers are cut (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of a step")
    given = parser.parse_args()

    figures = bench_lookup(Turns(1, 3600.0), given.model, given.tokens, given.threads)
    print_and_exit(figure.row() for figure in figures)


if __name__ == "__main__":
    main()
