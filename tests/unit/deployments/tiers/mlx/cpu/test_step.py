"""A step that the extension computes is the model's own, only sooner."""

import ctypes
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu import step as module
from deployments.tiers.mlx.cpu.step import _build, _CpuStep, _KernelUnavailable, _list_libraries, build_step
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache
from deployments.tiers.mlx.loading import _upcast
from tests.support.kernels import only_here
from tests.support.random_models import MODELS, VOCABULARY, build_model
from tests.support.repository import ROOT

# Tokens of a step around the numbers at which another way of multiplying, or of attending, is taken.
COUNTS = (1, 2, 3, 4, 9, 12, 13, 14, 32, 33, 40, 97)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {kind: build_model(kind) for kind in MODELS}


def list_kinds(model: Any) -> list[Path]:
    """List the libraries that this processor can run and the model's heads fit, AVX2's last."""
    attention = model.model.layers[0].self_attn
    size = attention.q_proj.weight.shape[0] // attention.n_heads
    return [path for floats, path in _list_libraries().items() if size % (4 * floats) == 0]


def fill_caches(model: Any, held: list[int]) -> tuple[Lengths, list[RaggedCache]]:
    """Caches whose rows hold so many tokens, with the same keys and values each time."""
    attention, lengths = model.model.layers[0].self_attn, Lengths(held)
    size = attention.k_proj.weight.shape[0] // attention.n_kv_heads
    shape = len(held), attention.n_kv_heads, max(held), size
    random = np.random.default_rng(7)
    keys, values = (mx.array(random.standard_normal(shape, np.float32)) if max(held) else None for _ in range(2))
    return lengths, [RaggedCache(lengths, keys, values) for _ in model.layers]


def draw_tokens(rows: int, count: int) -> Any:
    return mx.array(np.random.default_rng(count).integers(0, VOCABULARY, (rows, count)))


def compare(mine: Any, theirs: Any, count: int, old: list[Any]) -> None:
    """Compare what was written with MLX's, and all else with what was there before."""
    made, right = ([np.asarray(one) for cache in caches for one in cache.state] for _, caches in (mine, theirs))
    for row, held in enumerate(mine[0].values):
        end = held + count
        for one, other in zip(made, right, strict=True):
            np.testing.assert_allclose(one[row, :, :end], other[row, :, :end], atol=1e-4)
        for one, before in zip(made, old, strict=bool(old)):
            np.testing.assert_array_equal(one[row, :, :held], before[row, :, :held])
            np.testing.assert_array_equal(one[row, :, end : before.shape[2]], before[row, :, end:])


def assert_same(one: list[RaggedCache], other: list[RaggedCache]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mx.array_equal(mine.keys, theirs.keys).item()
        assert mx.array_equal(mine.values, theirs.values).item()


@pytest.mark.model
@only_here
class TestStep:
    @given(
        which=st.sampled_from(sorted(MODELS)),
        kind=st.integers(0, 1),
        threads=st.integers(1, 3),
        held=st.lists(st.sampled_from([0, 1, 5, 200, 255, 256, 700]), min_size=1, max_size=4),
        data=st.data(),
    )
    @settings(max_examples=60, deadline=None)
    def test_it_is_what_the_model_says(self, models, which, kind, threads, held, data):
        """Law: whatever the model, the registers, the threads, the sequences, their lengths and how many tokens are
        read of each, logits, keys and values are MLX's but for rounding, and nothing is written where no place of a row
        is."""
        model = models[which]
        kinds = list_kinds(model)
        step = _CpuStep(model, kinds[kind % len(kinds)], threads)
        mine, theirs = (fill_caches(model, held) for _ in range(2))
        for _ in range(2):
            count = data.draw(st.sampled_from(COUNTS))
            tokens = draw_tokens(len(held), count)
            old = [] if mine[1][0].empty() else [np.array(one) for cache in mine[1] for one in cache.state]
            made, right = step.read(tokens, *mine), model(tokens, cache=theirs[1])
            np.testing.assert_allclose(np.asarray(made), np.asarray(right), atol=2e-4 * np.abs(right).max().item())
            compare(mine, theirs, count, old)
            kept = [length + data.draw(st.integers(0, count)) for length in mine[0].values]
            mine[0].set(kept)
            theirs[0].set(kept)

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize("which", ["own head", "biases"])
    def test_threads_change_no_bit(self, models: dict[str, Any], which: str, count: int) -> None:
        """Law: no bit of logits, keys or values depends on the number of threads, however many tokens are read."""
        for library in list_kinds(models[which]):
            made = []
            for threads in (1, 2, 4):
                lengths, caches = fill_caches(models[which], [300, 20])
                step = _CpuStep(models[which], library, threads)
                made.append((step.read(draw_tokens(2, count), lengths, caches), caches))
            for logits, caches in made[1:]:
                assert mx.array_equal(logits, made[0][0]).item()
                assert_same(caches, made[0][1])

    @given(rows=st.lists(st.integers(0, 300), min_size=1, max_size=4), count=st.integers(1, 20), data=st.data())
    @settings(max_examples=40, deadline=None)
    def test_logits_of_a_few_are_those_among_all(self, models, rows, count, data):
        """Law: the logits behind the tokens that are wanted are what they are where all are, and keys and values are
        the same bit by bit, without any wanted too."""
        size = len(rows) * count
        wanted = sorted(data.draw(st.sets(st.integers(0, size - 1))))
        step = build_step(models["biases"])
        read, filled = (fill_caches(models["biases"], rows) for _ in range(2))
        tokens = draw_tokens(len(rows), count)
        right, made = step.read(tokens, *read), step.read(tokens, *filled, wanted)

        right = np.asarray(right).reshape(size, -1)
        np.testing.assert_allclose(np.asarray(made), right[wanted], atol=1e-5 * np.abs(right).max())
        assert_same(read[1], filled[1])

    @pytest.mark.parametrize("wanted", [[-1], [2], [0, 0], [1, 0]])
    def test_what_there_is_not_can_t_be_wanted(self, models: dict[str, Any], wanted: list[int]) -> None:
        """Law: numbers that aren't of these tokens, or don't rise, are refused before anything is read."""
        with pytest.raises(IndexError, match="wanted"):
            build_step(models["biases"]).read(mx.array([[5, 6]]), *fill_caches(models["biases"], [3]), wanted)

    @pytest.mark.parametrize("token", [-1, VOCABULARY, 1 << 30])
    def test_a_token_that_there_is_not_is_refused(self, models: dict[str, Any], token: int) -> None:
        """Law: nothing is read that isn't the model's, and the caches stay as they are."""
        lengths, caches = fill_caches(models["biases"], [3])
        before = np.array(caches[0].keys)
        with pytest.raises(IndexError, match=str(token)):
            build_step(models["biases"]).read(mx.array([[5, token]]), lengths, caches)

        np.testing.assert_array_equal(np.asarray(caches[0].keys), before)

    def test_rows_that_were_let_go_are_no_gap(self, models: dict[str, Any]) -> None:
        """Law: keys that lie in memory with gaps, as after a row has left, are read and written as they should."""
        model, tokens = models["biases"], draw_tokens(2, 2)
        lengths, caches = fill_caches(model, [300, 9, 20])
        for cache in caches:
            cache.select([1, 2], 20)
        lengths.set([9, 20])
        right = model(tokens, cache=caches)
        made = build_step(model).read(tokens, lengths, caches)

        np.testing.assert_allclose(np.asarray(made), np.asarray(right), atol=1e-4)


# A process that has had help computes a step again, then a fork of it does; at last it waits until its threads sleep.
FORKED = """
import os, threading
from tests.support.random_models import build_model
from tests.support.serving import until
from tests.unit.deployments.tiers.mlx.cpu.test_step import check_again

def state(thread):
    return open(f"/proc/self/task/{thread}/stat").read().rpartition(")")[2].split()[0]

def fork(again):
    again()
    assert len(os.listdir("/proc/self/task")) >= 3
    child = os.fork()
    if child == 0:
        again()
        print("forked", flush=True)
        os._exit(0)
    print("ok" if os.waitpid(child, 0)[1] == 0 else "bad")

check_again(build_model("own head"), fork)
others = [one for one in os.listdir("/proc/self/task") if int(one) != threading.get_native_id()]
until(lambda: all(state(one) == "S" for one in others), "sleep of the helpers")
print("asleep")
"""


def check_again(model: Any, use: Callable[[Callable[[], None]], None]) -> None:
    """Give `use` what computes the same step again and again, in memory of its own, and checks what comes out."""
    step = _CpuStep(model, list_kinds(model)[0], 3)
    run = step._run

    def take(task: Any) -> None:
        run(task)
        rows, lines = task.wanted_count, task.sequences * task.count
        shape = rows, task.vocabulary
        right = np.ctypeslib.as_array(ctypes.cast(task.made, ctypes.POINTER(ctypes.c_float)), shape).copy()
        width = 2 * (task.hidden + (task.heads + task.groups) * task.size + task.inner)

        def again() -> None:
            work, made, mine = np.empty(lines * width, np.float32), np.empty(shape, np.float32), type(task)()
            ctypes.pointer(mine)[0] = task
            mine.work, mine.made = work.ctypes.data, made.ctypes.data
            for _ in range(50):
                made[...] = np.nan
                run(mine)
                np.testing.assert_array_equal(made, right)

        use(again)

    step._run = take
    step.read(draw_tokens(2, 7), *fill_caches(model, [300, 20]))


@pytest.mark.model
@only_here
class TestThreads:
    def test_callers_at_once_get_each_their_own(self, models: dict[str, Any]) -> None:
        """Law: however many threads compute at once, one of them with helpers, each gets what it gets alone."""

        def use(again: Callable[[], None]) -> None:
            with ThreadPoolExecutor(4) as callers:
                assert list(callers.map(lambda _: again(), range(4))) == [None] * 4

        check_again(models["own head"], use)

    def test_a_fork_and_an_idle_process_are_at_ease(self) -> None:
        """Law: a process that was forked off, which has none of the helping threads, computes as before; and the
        helpers sleep where nothing is computed."""
        command = [sys.executable, "-c", FORKED]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

        assert done.stdout.split() == ["forked", "ok", "asleep"], done.stdout + done.stderr


@pytest.mark.model
@only_here
@pytest.mark.parametrize(
    ("what", "words"),
    [
        *(("half", "float16"), ("quantized", "quantized"), ("adapter", "an adapter"), ("bias", "more than these")),
        *(("size", "heads of 48"), ("family", "mlx_lm.models.phi3"), ("else", "something else"), ("stock", "stock")),
    ],
)
def test_what_it_is_not_for_is_mlx_s(what: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: weights, layers and heads of another kind, and a model that computes something else than its layers say,
    stay with MLX, and the reason says why."""
    import mlx.nn as nn
    from mlx.utils import tree_map
    from mlx_lm.tuner.lora import LoRALinear

    model = build_model("biases")
    if what == "half":
        model.update(tree_map(lambda one: one.astype(mx.float16), model.parameters()))
    elif what == "quantized":
        nn.quantize(model.model.layers[1].self_attn, group_size=32)
    elif what == "adapter":
        layer = model.model.layers[1].self_attn
        layer.q_proj = LoRALinear.from_base(layer.q_proj)
    elif what == "bias":
        model.model.layers[1].mlp.up_proj.bias = mx.zeros((112,))
    elif what == "size":
        monkeypatch.setitem(MODELS, "biases", ("llama", {"head_dim": 48}))
        model = build_model("biases")
    elif what == "family":
        monkeypatch.setattr(type(model), "__module__", "mlx_lm.models.phi3")
    elif what == "else":
        monkeypatch.setattr(type(model), "__call__", lambda _, tokens, **__: mx.zeros((*tokens.shape, VOCABULARY)))
    else:
        monkeypatch.setenv("MLX_STACK_BLAS", "stock")

    with pytest.raises(_KernelUnavailable, match=words):
        _build(model, 1)
    assert build_step(model) is None


class TestLibraries:
    @pytest.mark.parametrize(
        ("system", "machine", "flags", "words"),
        [
            ("darwin", "arm64", "", "none for darwin on arm64"),
            ("linux", "aarch64", "", "none for linux on aarch64"),
            ("linux", "x86_64", "sse2 avx", "neither AVX2 nor AVX-512"),
            ("linux", "x86_64", "avx2 fma", "wasn't built"),
            ("linux", "x86_64", None, "can't be read"),
        ],
    )
    def test_where_there_is_none_the_reason_is_in_words(self, system, machine, flags, words, tmp_path, monkeypatch):
        """Law: on another machine, an older processor, or where it wasn't built, MLX's own stays, with a reason."""

        def read(*_: Any, **__: Any) -> str:
            if flags is None:
                raise OSError("no such file")
            return f"processor: 0\nflags\t\t: {flags}\n"

        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(module, "__file__", str(tmp_path / "step.py"))
        monkeypatch.setattr(Path, "read_text", read)

        assert words in module.explain_missing()

    @pytest.mark.model
    @only_here
    @pytest.mark.parametrize("content", [b"\x7fELF, but not whole", b""])
    def test_a_file_that_is_no_library_is_no_step(self, models, content, tmp_path, monkeypatch):
        """Law: a library that can't be loaded leaves MLX's own."""
        (tmp_path / "broken.so").write_bytes(content)
        monkeypatch.setattr(module, "_list_libraries", lambda: {8: tmp_path / "broken.so"})

        with pytest.raises(_KernelUnavailable, match=r"broken\.so"):
            _build(models["biases"], 1)


@pytest.mark.model
@only_here
def test_a_model_of_short_floats_gets_its_step() -> None:
    """Law: what is upcast is computed as any model in float32: in one call."""
    model = build_model("normed")
    model.set_dtype(mx.bfloat16)
    _upcast(model)

    assert build_step(model) is not None
