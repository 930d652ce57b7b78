"""macOS's sensor, by fakes of its kernel."""

import ctypes

from deployments.memory.sensors.macos import LEVEL, MacosSensor, _VmStatistics64
from deployments.memory.sensors.sensor import NS_PER_S
from tests.support.sensor_values import values


class FakeKernel:
    """macOS's calls, as a test wants them answered."""

    def __init__(self) -> None:
        self.level: int | None = 1
        self.swapped = 0

    def sysctl_u32(self, name: str) -> int | None:
        return self.level if name == LEVEL else None

    def read_swap_out_bytes(self) -> int | None:
        return self.swapped

    def memory_bytes(self) -> tuple[int, int]:
        return 16 << 30, 4 << 30


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


def test_macos_swap_is_a_rate():
    """Bytes that left for swap per second."""
    kernel = FakeKernel()
    sensor = MacosSensor(kernel)
    sensor.read(NS_PER_S)
    kernel.swapped = 64_000_000
    assert values(sensor.read(3 * NS_PER_S))["swap_out_mb"] == 32.0


def test_the_layouts_are_those_of_the_headers():
    """Sizes and offsets that <mach/vm_statistics.h> gives."""
    assert (ctypes.sizeof(_VmStatistics64), _VmStatistics64.swapouts.offset) == (152, 120)
