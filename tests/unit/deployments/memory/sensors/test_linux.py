"""Linux's sensor: this machine for real, and others by their files."""

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
from deployments.memory.sensors.sensor import NS_PER_S
from tests.support.repository import ROOT
from tests.support.sensor_values import values
from tests.support.serving import until

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@LINUX
def test_this_machine_is_read():
    """The share that is used agrees with psutil, and the second reading knows the rate of swapping."""
    import psutil

    sensor = LinuxSensor()
    sensor.read(time.monotonic_ns())
    sample = sensor.read(time.monotonic_ns())
    memory = psutil.virtual_memory()

    assert sample.problem == ""
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
    command = [sys.executable, "-m", "tests.support.hog", str(cgroup)]
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
    root = machine(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/a/b\n")
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
