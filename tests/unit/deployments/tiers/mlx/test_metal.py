"""A GPU that ignores what the process submits: the process ends, and says so first."""

from pathlib import Path

import pytest

from deployments.tiers.mlx.metal import is_gpu_lost
from reliability.types import Fault
from tests.support import tiny_model as tiny
from tests.support.engine_rig import Rig, whole
from tests.support.tier_asking import failed

IGNORED = (
    "[METAL] Command buffer execution failed: Ignored (for causing prior/excessive GPU errors) "
    "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
)
FAILED = "[METAL] Command buffer execution failed: "
TIMED_OUT = FAILED + "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"


FULL = FAILED + "Insufficient Memory (00000008:OutOfMemory)"


@pytest.mark.parametrize("words", [IGNORED, "submission ignored", TIMED_OUT, FULL, "a model that ignores the mask", ""])
def test_metal_s_words_are_known(words: str) -> None:
    """Law: only the error that no second try helps against ends the process."""
    assert is_gpu_lost(RuntimeError(words)) is (words in (IGNORED, "submission ignored"))


def test_the_process_ends_after_one_failed_step(tmp_path: Path) -> None:
    """Law: on that error every request, also one that waits, is told `crashed` and lost at once; the replica is no
    longer healthy, and its process is told to end, after one step and not after three."""
    ends: list[int] = []
    folder = tiny.write_folder(tmp_path / "m")
    rig = Rig(folder, end_process=lambda: ends.append(len(rig.model.shapes)))
    rig.model.moving.clear()
    rig.model.broken, rig.model.words = True, IGNORED
    first = len(rig.model.shapes)
    outs = [rig.ask()[1] for _ in range(5)]
    rig.model.moving.set()
    lasts = [failed(whole(out)) for out in outs]

    assert [(last.fault, last.lost) for last in lasts] == [(Fault.CRASHED, True)] * 5
    assert not rig.engine.healthy()
    assert ends[0] == first + 1
    rig.engine.close()
