"""The sensors: Linux for real on this machine, macOS by fakes of its kernel, and the scripted one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.memory.sensors.linux import LinuxSensor
from deployments.memory.sensors.macos import LEVEL, MacosSensor, _VmStatistics64
from deployments.memory.sensors.scripted import ScriptedSensor, parse
from deployments.memory.sensors.sensor import NS_PER_S, Counter, Sample, make_sensor
from reliability.memory.pressure import Level, Pressure, PressureConfig, Reading, level_at, observe
from tests.repository import ROOT
from tests.serving import until

FIXTURES = Path(__file__).parent / "fixtures"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def values(sample: Sample) -> dict[str, float | None]:
    return {reading.source: reading.value for reading in sample.readings}


# -- Linux, for real ---------------------------------------------------------------------------------------------------


@LINUX
def test_this_machine_is_read():
    """The share that is used agrees with psutil, and the second reading knows the rate of swapping."""
    import psutil

    sensor = LinuxSensor()
    sensor.read(time.monotonic_ns())
    sample = sensor.read(time.monotonic_ns())
    memory = psutil.virtual_memory()

    assert sample.problem == ""
    assert sample.total_bytes is not None
    assert sample.total_bytes <= memory.total
    assert values(sample)["used_share"] == pytest.approx(1 - memory.available / memory.total, abs=0.05)
    assert values(sample)["swap_out_mb"] is not None
    assert set(values(sample)) <= set(sensor.sources)


@LINUX
def test_a_reading_takes_less_than_a_millisecond():
    """The median of 200 readings is under 1 ms."""
    sensor, took_s = LinuxSensor(), []
    for _ in range(200):
        began = time.thread_time()
        sensor.read(time.monotonic_ns())
        took_s.append(time.thread_time() - began)

    assert sorted(took_s)[100] < 0.001


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of one's own, where this machine lets us make one."""
    tree = Path("/sys/fs/cgroup")
    parent = tree / "memory" if (tree / "memory").is_dir() else tree
    folder = parent / f"ms-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    if not any((folder / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
        folder.rmdir()
        pytest.skip("the memory controller isn't there")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text().strip(), "the cgroup is empty")
    folder.rmdir()


@LINUX
def test_a_real_hog_in_a_real_cgroup(cgroup: Path):
    """A process that fills its cgroup goes through warn and critical, and back to normal when it frees."""
    command = [sys.executable, "-m", "tests.memory.hog", str(cgroup)]
    out = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert out.stdout.split() == ["normal", "warn", "critical", "warn", "normal"], out.stderr


def machine(root: Path, **files: str) -> Path:
    """A /proc and /sys with these files; `__` stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    250 kB\n"


def test_the_tightest_cgroup_counts(tmp_path: Path):
    """Of several limits above the process the smallest is taken; file cache that can go is not counted as used."""
    root = machine(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/a/b\n",
    )
    group = root / "sys/fs/cgroup"
    machine(
        root,
        **{
            "sys__fs__cgroup__cgroup.controllers": "memory",
            "sys__fs__cgroup__a__memory.max": "400000\n",
            "sys__fs__cgroup__a__memory.current": "300000\n",
            "sys__fs__cgroup__a__memory.stat": "anon 1\ninactive_file 100000\n",
            "sys__fs__cgroup__a__b__memory.max": "max\n",
            "sys__fs__cgroup__a__b__memory.pressure": "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=1\n",
        },
    )
    sample = LinuxSensor(root).read(1)

    assert group.is_dir()
    assert values(sample)["cgroup_share"] == 0.5
    assert values(sample)["psi_cgroup"] == 12.5
    assert values(sample)["psi"] is None
    assert (sample.total_bytes, sample.available_bytes) == (400_000, 200_000)


def test_cgroups_of_version_1(tmp_path: Path):
    """Version 1 has its own names; its 'no limit' is a large number and no limit."""
    at = "sys__fs__cgroup__memory__"
    files = {
        f"{at}memory.limit_in_bytes": "9223372036854771712\n",
        f"{at}x__memory.limit_in_bytes": "1000\n",
        f"{at}x__memory.usage_in_bytes": "950\n",
        f"{at}x__memory.stat": "total_inactive_file 0\n",
    }
    sample = LinuxSensor(machine(tmp_path, proc__self__cgroup="4:cpu,memory:/x\n", **files)).read(1)

    assert values(sample)["cgroup_share"] == 0.95
    assert sample.problem != ""


def test_nothing_to_read_is_unknown(tmp_path: Path):
    """A kernel without any of the files gives no number, says so, and raises nothing."""
    sample = LinuxSensor(tmp_path).read(1)

    assert set(values(sample).values()) == {None}
    assert sample.problem == "/proc/meminfo can't be read"


@given(st.binary(max_size=300))
def test_whatever_the_files_hold_it_does_not_raise(tmp_path_factory: pytest.TempPathFactory, junk: bytes):
    """A reading is a value for any content of the files."""
    root = tmp_path_factory.mktemp("m")
    for name in ("proc/meminfo", "proc/vmstat", "proc/pressure/memory", "proc/self/cgroup"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(junk)
    LinuxSensor(root).read(1)


def test_swap_is_a_rate(tmp_path: Path):
    """Pages that left since the last reading, per second; a counter that falls (a reboot) is unknown once."""
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    sensor = LinuxSensor(machine(tmp_path, proc__vmstat="pswpin 5\npswpout 1000\n"))
    assert values(sensor.read(NS_PER_S))["swap_out_mb"] is None
    machine(tmp_path, proc__vmstat="pswpin 5\npswpout 3000\n")
    assert values(sensor.read(3 * NS_PER_S))["swap_out_mb"] == pytest.approx(1000 * page_mb)
    machine(tmp_path, proc__vmstat="pswpin 5\npswpout 10\n")
    assert values(sensor.read(4 * NS_PER_S))["swap_out_mb"] is None


def test_a_counter_needs_time_to_pass():
    """No time, no rate."""
    counter = Counter()
    assert counter.per_s(1, 5) is None
    assert counter.per_s(2, 5) is None


# -- macOS, by fakes ---------------------------------------------------------------------------------------------------


class FakeKernel:
    """macOS's calls, as a test wants them answered."""

    def __init__(self) -> None:
        self.level: int | None = 1
        self.swapped = 0
        self.handlers: list = []

    def sysctl_u32(self, name: str) -> int | None:
        return self.level if name == LEVEL else None

    def swapped_out_bytes(self) -> int | None:
        return self.swapped

    def memory_bytes(self) -> tuple[int, int]:
        return 16 << 30, 4 << 30

    def on_pressure(self, handler) -> bool:
        self.handlers.append(handler)
        return True


def test_macos_levels_are_those_of_the_kernel():
    """1, 2 and 4 are known; any other word and a failed call are unknown and said."""
    kernel = FakeKernel()
    sensor = MacosSensor(kernel)
    for level in (1, 2, 4):
        kernel.level = level
        assert values(sensor.read(level))["macos_level"] == level
    for odd in (None, 0, 3):
        kernel.level = odd
        sample = sensor.read(10)
        assert values(sample)["macos_level"] is None
        assert str(odd) in sample.problem


def test_macos_swap_is_a_rate_and_wakes_early():
    """Bytes that left for swap per second; the handler of the pressure source is the one that was given."""
    kernel = FakeKernel()
    sensor = MacosSensor(kernel)
    sensor.read(NS_PER_S)
    kernel.swapped = 64_000_000
    assert values(sensor.read(3 * NS_PER_S))["swap_out_mb"] == 32.0
    woken: list[int] = []
    assert sensor.wake_by(lambda: woken.append(1))
    kernel.handlers[0]()
    assert woken == [1]


def test_the_layouts_are_those_of_the_headers():
    """Sizes and offsets that <mach/vm_statistics.h> gives."""
    assert (ctypes.sizeof(_VmStatistics64), _VmStatistics64.swapouts.offset) == (152, 120)


# -- scripted ----------------------------------------------------------------------------------------------------------


def test_a_play_in_time(tmp_path: Path):
    """The last line whose time has come counts; time begins with the first reading."""
    path = tmp_path / "play"
    path.write_text("0 normal\n2.5 warn  # here it begins\n5 used_share=0.97 psi=3\n")
    sensor = make_sensor(f"scripted:{path}")
    assert isinstance(sensor, ScriptedSensor)
    seen = [values(sensor.read(100 * NS_PER_S + int(at * NS_PER_S))) for at in (0, 2.4, 2.5, 7)]

    assert seen == [{"scripted": 1.0}, {"scripted": 1.0}, {"scripted": 2.0}, {"used_share": 0.97, "psi": 3.0}]


def test_a_word_is_the_level_now(tmp_path: Path):
    """Whoever writes the file turns the knob; a missing or unreadable one is unknown, with the reason."""
    path = tmp_path / "knob"
    sensor = ScriptedSensor(str(path))
    assert "No such file" in sensor.read(1).problem
    path.write_text("critical")
    assert values(sensor.read(2)) == {"scripted": 4.0}
    path.write_text("unknown")
    assert values(sensor.read(3)) == {"scripted": None}
    path.write_text("panic")
    assert "neither a level" in sensor.read(4).problem


@given(st.text(max_size=60))
def test_a_line_is_read_or_refused(text: str):
    """Any text is a list of steps in order of time, or a ValueError."""
    try:
        steps = parse(text)
    except ValueError:
        return
    assert steps == sorted(steps, key=lambda step: step.at_s)


# -- replays -----------------------------------------------------------------------------------------------------------


def replay(name: str, sources: tuple[str, ...]) -> list[tuple[int, str]]:
    """The moves between levels over a series: (second, level)."""
    pressure, moves = Pressure(), []
    settings = PressureConfig(sources={s: LinuxSensor().sources.get(s) or MacosSensor.sources[s] for s in sources})
    for line in (FIXTURES / name).read_text().splitlines()[1:]:
        at_s, *numbers = (float(word) for word in line.split("\t"))
        now_ns = int(at_s * NS_PER_S) + 1
        readings = [Reading(s, n) for s, n in zip(sources, numbers, strict=True)]
        pressure, change = observe(pressure, settings, readings, now_ns)
        if change is not None:
            moves.append((int(at_s), change.after.value))
    assert level_at(pressure, now_ns) is Level.NORMAL
    return moves


def test_a_linux_series():
    """PSI and the used share through a swap storm: up fast, down one level at a time, no flapping."""
    moves = replay("linux_psi.tsv", ("psi", "used_share"))

    assert [level for _, level in moves] == ["normal", "warn", "critical", "warn", "normal"]
    assert 40 <= moves[1][0] <= 50
    assert moves[3][0] - moves[2][0] >= 10
    assert moves[4][0] - moves[3][0] >= 10


def test_a_macos_series():
    """A kernel level that flickers is one rise and one descent."""
    moves = replay("macos_level.tsv", ("macos_level", "swap_out_mb"))

    assert [level for _, level in moves] == ["normal", "warn", "critical", "warn", "normal"]
    assert moves[2][0] == 40
    assert moves[4][0] == 99  # calm since 90, and the time that calm must last
