"""Prompts that outlive the engine that computed them, on real models: after a restart, on another replica, behind one
that was killed."""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptReuse
from deployments.tiers.mlx.prompt_cache.segment_file import PART, remove_if_orphan
from deployments.tiers.mlx.prompt_cache.segment_folder import TOKENS_MIN
from tests.support import tiny_model as tiny
from tests.support.engine_rig import Rig, text_of
from tests.support.mlx_rig import PATIENCE_S
from tests.support.repository import ROOT
from tests.support.tier_asking import eventually, usage_of

DICE = random.Random(7)
PROMPT = [DICE.randrange(4, 190) for _ in range(150)]
CHECKPOINT = 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


def begin(folder: Path, root: Path, bytes_max: int = 1 << 30) -> Rig:
    return Rig(folder, prompt_disk=root, prompt_disk_bytes=bytes_max)


def await_file(root: Path) -> None:
    """Wait until something is stored."""
    asyncio.run(eventually(lambda: bool(list(root.glob("*/s0-*"))), PATIENCE_S))


def test_a_restart_finds_the_prompt_and_says_the_same(folder: Path, root: Path) -> None:
    """Law: the same prompt, its next turn and another session under its system prompt reuse after a restart what they
    would have before it, and say what they say without any reuse."""
    plain = Rig(folder, prompt_cache_bytes=0)
    first = begin(folder, root)
    said = first.answer(prompt=PROMPT, reuse=PromptReuse(checkpoints=[CHECKPOINT]))
    first.engine.close()
    turn, other = [*PROMPT, *range(40, 60)], [*PROMPT[:CHECKPOINT], *range(60, 90)]
    for prompt, expected in ((PROMPT, len(PROMPT) - 1), (turn, len(PROMPT)), (other, CHECKPOINT)):
        second = begin(folder, root)
        again = second.answer(prompt=prompt)
        assert text_of(again) == text_of(plain.answer(prompt=prompt))
        assert usage_of(again).cached_tokens in range(expected - TOKENS_MIN, expected + 1)
        second.engine.close()
    assert text_of(said) == text_of(plain.answer(prompt=PROMPT))
    plain.engine.close()


def test_a_folder_that_cannot_be_asked_for_stops_nobody(folder: Path, tmp_path: Path) -> None:
    """Law: where the disk doesn't say what is free, the engine is ready, and memory serves it."""
    rig = Rig(folder, prompt_disk=tmp_path / ("x" * 300))
    rig.answer(prompt=PROMPT)
    assert usage_of(rig.answer(prompt=PROMPT)).cached_tokens > 0
    rig.engine.close()


def test_another_model_finds_nothing(folder: Path, root: Path, tmp_path: Path) -> None:
    """Law: with other weights or another template nothing is found."""
    first = begin(folder, root)
    first.answer(prompt=PROMPT)
    first.engine.close()
    other = tiny.write_folder(tmp_path / "other", seed=2)
    second = begin(other, root)
    assert usage_of(second.answer(prompt=PROMPT)).cached_tokens == 0
    second.engine.close()
    assert len({path.parent for path in root.glob("*/*")}) == 2


REPLICA = """
import os, sys
from pathlib import Path
from deployments.tiers.mlx.prompt_cache import segment_file
from tests.unit.deployments.tiers.mlx.prompt_cache.test_prompt_store_restart import PROMPT, await_file, begin

stall, pieces = sys.argv[3] == "in the middle", 0
cut = segment_file._list_pieces

def list_pieces(*inputs):
    for number, piece in enumerate(cut(*inputs)):
        if stall and number == 3:
            print("stalled", flush=True)
            sys.stdin.read()
        yield piece

segment_file._list_pieces = list_pieces
rig = begin(Path(sys.argv[1]), Path(sys.argv[2]))
rig.answer(prompt=PROMPT)
await_file(Path(sys.argv[2]))
print("written", flush=True)
sys.stdin.read()
"""


def test_who_is_not_to_be_kept_leaves_no_file(folder: Path, root: Path) -> None:
    """Law: a request that isn't to be kept is in memory and not on disk; with a bound of 0 none is on disk."""
    rig, reuse = begin(folder, root), PromptReuse(keep=False)
    rig.answer(prompt=PROMPT, reuse=reuse)
    assert usage_of(rig.answer(prompt=PROMPT, reuse=reuse)).cached_tokens == len(PROMPT) - 1
    rig.engine.close()
    off = begin(folder, root, bytes_max=0)
    off.answer(prompt=PROMPT)
    off.engine.close()
    assert list(root.glob("*/*")) == []


@pytest.mark.parametrize("when", ["in the middle", "afterwards"])
def test_the_successor_of_a_killed_replica(when: str, folder: Path, root: Path) -> None:
    """Law: a replica that dies by kill -9 leaves what it had written to its successor; one that dies in the middle of
    writing leaves nothing that is used, and what it leaves is gone after the successor's start, and not as long as it
    lives. The text is the same in both cases."""
    command = [sys.executable, "-c", REPLICA, str(folder), str(root), when]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as replica:
        assert replica.stdout.readline() == ("stalled\n" if when == "in the middle" else "written\n")
        parts = list(root.glob(f"*/{PART}*"))
        assert not any(map(remove_if_orphan, parts))
        replica.send_signal(signal.SIGKILL)
        assert replica.wait(PATIENCE_S) == -signal.SIGKILL
    assert bool(parts) is (when == "in the middle")
    plain, successor = Rig(folder, prompt_cache_bytes=0), begin(folder, root)
    assert not list(root.glob(f"*/{PART}*"))
    again = successor.answer(prompt=PROMPT)
    assert (usage_of(again).cached_tokens > 0) is (when == "afterwards")
    assert text_of(again) == text_of(plain.answer(prompt=PROMPT))
    for rig in (plain, successor):
        rig.engine.close()
