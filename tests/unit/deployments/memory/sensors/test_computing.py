"""What computes on a machine, and that all that follows from it agrees."""

import importlib.metadata
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deployments.cli import doctor
from deployments.memory import room
from deployments.memory.monitor import _make_sensor
from deployments.memory.plan import MonitorSettings
from deployments.memory.room import estimate_scores_bytes
from deployments.memory.sensors import computing
from deployments.memory.sensors.computing import Computing, find_computing, has_nvidia_gpu
from deployments.models import catalog, conversion
from deployments.models.weights import find_held_dtype

GIB = 1 << 30


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A Linux with an NVIDIA GPU of 24 GiB, where MLX's packages for a CPU and for CUDA are installed, and whose
    library is in place that `brought` names."""
    library, driver = tmp_path / "libmlx.so", tmp_path / "nvidiactl"
    driver.touch()
    sizes = {"mlx-cpu": 30, "mlx-cuda-13": 140}

    class File(str):
        size = sizes["mlx-cuda-13"]

        def locate(self) -> Path:
            return library

    def files(package: str) -> list[File]:
        if package not in sizes:
            raise importlib.metadata.PackageNotFoundError(package)
        return [File("mlx/share/x"), File("mlx/lib/libmlx.so")]

    def bring(package: str) -> None:
        library.write_bytes(b"x" * sizes[package])

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(computing, "_DEVICES", (str(driver),))
    monkeypatch.setattr(importlib.metadata, "files", files)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(computing, "_ask_mlx", lambda name: {"total_memory": 24 * GIB}[name])
    bring("mlx-cuda-13")
    return SimpleNamespace(bring=bring, driver=driver)


def test_cuda_computes_where_driver_and_library_are(gpu, monkeypatch):
    """Each of them alone, or a GPU that is hidden from this process, leaves the CPU."""
    assert find_computing() is Computing.CUDA

    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert find_computing() is Computing.CPU
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    gpu.bring("mlx-cpu")
    assert (find_computing(), has_nvidia_gpu()) == (Computing.CPU, True)
    gpu.bring("mlx-cuda-13")
    gpu.driver.unlink()
    assert (find_computing(), has_nvidia_gpu()) == (Computing.CPU, False)


@pytest.mark.parametrize(
    ("system", "machine", "found"),
    [("darwin", "arm64", "metal"), ("darwin", "x86_64", "cpu"), ("linux", "x86_64", "cpu"), ("linux", "arm64", "cpu")],
)
def test_apple_silicon_is_metal(system, machine, found, monkeypatch):
    """Nothing else is, and this machine has no NVIDIA GPU."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(computing, "_DEVICES", ())

    assert find_computing() == found


def test_all_that_follows_takes_the_gpu_for_one(gpu):
    """Weights stay short, memory is the GPU's, and `auto` means what it does on a Mac that has as much of it."""
    usable_bytes = int(0.9 * 24 * GIB)
    choices = [catalog.choose_here(role, "auto") for role in catalog.ROLES]
    mac = [catalog.choose(role, "darwin", "arm64", 32 * GIB) for role in catalog.ROLES]

    assert find_held_dtype({"torch_dtype": "bfloat16"}) == "bfloat16"
    assert conversion._choose_dtype() == "float16"
    assert _make_sensor("auto").read(0).working_set_bytes == usable_bytes
    assert MonitorSettings().budget_of(64 * GIB, usable_bytes) == usable_bytes
    assert room.find_room_alone().working_set_bytes == usable_bytes
    assert "that models may use of the GPU" in room.explain_lack(2 * usable_bytes, room.find_room_alone())
    assert [choice.source for choice in choices] == [choice.source for choice in mac]
    assert "NVIDIA" in choices[0].why


def test_a_gpu_that_says_nothing_is_no_working_set(gpu, monkeypatch):
    """Then the machine's memory counts, and the small models are chosen."""
    monkeypatch.setattr(computing, "_ask_mlx", lambda _: None)

    assert computing.find_working_set() is None
    assert catalog.choose_here("fast", "auto").source == catalog.choose("fast", "linux", "x86_64", 64 * GIB).source


def test_the_doctor_names_what_computes_and_a_gpu_that_stands_idle(gpu):
    """The one line that helps is in the finding."""
    assert [(one.level, one.words) for one in doctor._check_computing()] == [("ok", "CUDA")]

    gpu.bring("mlx-cpu")
    finding = next(doctor._check_computing())
    assert finding.level == "warn"
    assert "pip install --force-reinstall --no-deps mlx-cuda-13" in finding.words


@pytest.mark.parametrize(("on", "size", "token_bytes"), [
    (Computing.CPU, 64, 2 * 4 * 32 * 512), (Computing.CUDA, 128, 0), (Computing.CUDA, 96, 0),
    (Computing.CUDA, 100, 4 * 32 * 512), (Computing.CUDA, 256, 4 * 32 * 512), (Computing.METAL, 128, 0),
    (Computing.METAL, 96, 4 * 32 * 512),
])  # fmt: skip
def test_scores_count_where_no_kernel_spares_them(on, size, token_bytes):
    """By what computes and the size of a head."""
    assert estimate_scores_bytes(32, size, 512, on, forced=False) == (0, token_bytes)
