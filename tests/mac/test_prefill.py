"""What reading a long prompt takes on Metal: no memory that isn't counted, and chunks that suit the model."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import mlx.core as mx
import pytest

from deployments.memory.room import AGENT_TOKENS, SCORES_BYTES_MAX, Room
from deployments.tiers.mlx import metal, warm_up
from deployments.tiers.mlx.cache_size import scratch_bytes
from deployments.tiers.mlx.warm_up import _choose_chunk, _measure_chunk
from tests.mac.engines import QWEN3_8B, start_batch
from tests.mac.scripted_mac import ScriptedMac
from tests.support.engine_rig import load_folder

DENSE = {"hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "intermediate_size": 12288}
# Of Qwen3-8B and Qwen3.6-35B-A3B; the arguments of the latter hold only those of the text model, by name.
HYBRID = {"hidden_size": 2048, "num_attention_heads": 16, "head_dim": 256, "intermediate_size": 512}
PHI_3 = {"hidden_size": 3072, "num_attention_heads": 32, "intermediate_size": 8192}  # heads of 96


def model_of(args: dict[str, Any], *, nested: bool = False) -> Any:
    return SimpleNamespace(args=SimpleNamespace(text_config=args) if nested else SimpleNamespace(**args))


class TestScores:
    def test_what_is_fused_takes_nothing(self, monkeypatch):
        """Law: for the sizes that Metal fuses by itself there are no scores; on a CPU there always are."""
        assert scratch_bytes(model_of(DENSE), 512)[1] == 4 * 2 * 32 * 512
        ScriptedMac(24).start(monkeypatch)
        assert scratch_bytes(model_of(DENSE), 512)[1] == 0

    @pytest.mark.parametrize("nested", [False, True])
    def test_wide_heads_are_counted(self, monkeypatch, nested):
        """Law: where heads of 256 aren't fused, a step behind 100,000 tokens is known to take 3.3 GB, wherever the
        model's arguments have its shape; where the fused kernels can be asked for, it takes no more than the bound."""
        ScriptedMac(64).start(monkeypatch)
        model = model_of(HYBRID, nested=nested)
        step_bytes, token_bytes = scratch_bytes(model, 512)
        assert token_bytes * 100_000 == pytest.approx(3.3e9, rel=0.01)
        assert scratch_bytes(model, 512, forced=True) == (step_bytes + SCORES_BYTES_MAX, 0)
        assert scratch_bytes(model_of(PHI_3), 512, forced=True)[1] == 4 * 32 * 512

    def test_long_contexts_ask_for_the_fused_kernels(self, monkeypatch):
        """Law: the kernels for wide heads are asked for where the scores would take more than the bound, and only
        there: not behind a short text, not to decode, not for a size that has none."""
        mac = ScriptedMac(64).start(monkeypatch)
        metal.install_fused()
        metal.install_fused()
        assert metal.is_forced()
        for queries, keys, size in ((256, 300, 256), (8, 20_000, 256), (256, 300, 128), (256, 200, 256)):
            wide = metal._FusedAttention(mac.attend, bytes_max=4 * 256 * 256)
            q, k = mx.zeros((1, 1, queries, size)), mx.zeros((1, 1, keys, size))
            wide(q, k, k, scale=1.0, mask=None)
        assert [asked for _, asked in mac.attended[-4:]] == [True, False, False, False]
        mac.has_wide_kernels = False  # what they refuse is computed all the same
        assert metal._FusedAttention(mac.attend, bytes_max=0)(q, q, q, scale=1.0).shape == q.shape

    def test_an_mlx_without_the_kernels_stays_as_it_is(self, monkeypatch):
        """Law: where the trial fails, nothing is put in its place, and the scores are counted."""
        mac = ScriptedMac(64, has_wide_kernels=False).start(monkeypatch)
        metal.install_fused()
        assert mx.fast.scaled_dot_product_attention == mac.attend
        assert not metal.is_forced()


class Machine:
    """A GPU that reads so many tokens a second, by the size of the chunk; its clock advances as it reads."""

    def __init__(self, speeds: dict[int, float]) -> None:
        self.now_s, self.speeds, self.asked = 0.0, speeds, list[int]()

    def read(self, tokens: int) -> None:
        self.asked.append(tokens)
        self.now_s += tokens / self.speeds[tokens]

    def clock(self) -> float:
        return self.now_s


class TestChunk:
    @pytest.mark.parametrize(
        ("speeds", "best"),
        [
            ({256: 3990, 512: 4000, 1024: 4010, 2048: 4005}, 256),  # as fast in small ones: less memory
            ({256: 6000, 512: 8000, 1024: 9000, 2048: 9500}, 2048),
            ({256: 3000, 512: 3900, 1024: 3950, 2048: 3000}, 512),
            ({256: 400, 512: 500, 1024: 500, 2048: 500}, 512),  # too slow to try more than one in the time
        ],
    )
    def test_the_smallest_of_the_fastest_is_taken(self, speeds, best):
        """Law: of the sizes that can be tried in about a second, the smallest that is within 3 % of the fastest."""
        machine = Machine(speeds)
        assert _measure_chunk(machine.read, machine.clock) == best
        assert machine.now_s <= 1.5

    @pytest.mark.parametrize(("spare_bytes", "tokens"), [(0, 512), (1 << 30, 2048)])
    def test_an_agents_context_comes_first(self, folder, monkeypatch, spare_bytes, tokens):
        """Law: the chunk that suits the model is read at once, unless what it takes leaves too short a context."""
        ScriptedMac(24).start(monkeypatch)
        monkeypatch.setattr(warm_up, "_choose_chunk", lambda *_: 2048)
        usual = scratch_bytes(load_folder(folder).model, 512)
        needed_bytes = QWEN3_8B.weight_bytes + AGENT_TOKENS * (QWEN3_8B.token_bytes + usual[1]) + usual[0]
        room = Room(working_set_bytes=needed_bytes + spare_bytes)
        loaded, batch = start_batch(folder, QWEN3_8B, monkeypatch, room=room)
        assert batch.pace.tokens_max == tokens
        assert loaded.context_tokens >= AGENT_TOKENS

    def test_a_machine_measures_once(self, monkeypatch, tmp_path):
        """Law: the figure is kept by model, packages and GPU; another of them is measured anew. A model that can't
        read so much keeps the usual size; on a processor nothing is measured."""
        ScriptedMac(24).start(monkeypatch)
        measure = mock.Mock(return_value=1024)
        monkeypatch.setattr(warm_up, "_measure_chunk", measure)
        assert _choose_chunk(None, {"model": "a"}, tmp_path) == 512  # MLX's default device here is a processor
        monkeypatch.setattr(mx, "default_device", lambda: "a GPU")
        assert [_choose_chunk(None, {"model": name}, tmp_path) for name in "abab"] == [1024] * 4
        assert measure.call_count == 2
        monkeypatch.undo()
        ScriptedMac(24).start(monkeypatch)
        monkeypatch.setattr(mx, "default_device", lambda: "a GPU")
        assert _choose_chunk(None, {"model": "a"}, tmp_path) == 1024
        assert _choose_chunk(None, {"model": "c"}, tmp_path) == 512  # no model: reading raises
