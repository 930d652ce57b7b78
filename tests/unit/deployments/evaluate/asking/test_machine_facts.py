"""What the figures were measured on: the machine, the versions, the energy."""

from __future__ import annotations

from deployments.evaluate.asking.machine_facts import Energy, describe_machine, list_versions


def test_the_machine_is_named():
    """Processor, cores, memory and system are known everywhere."""
    machine = describe_machine()

    assert machine["processor"]
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > 1e8
    assert machine["system"]


def test_versions_of_what_computes():
    """Those that are installed, with Python's."""
    assert {"python", "ray", "mlx-lm"} <= set(list_versions())


def test_energy_is_the_difference_of_the_counters(tmp_path):
    """Of all packages together, in joules."""
    for number in (0, 1):
        (tmp_path / f"intel-rapl:{number}").mkdir()
        (tmp_path / f"intel-rapl:{number}/energy_uj").write_text("1000000\n")
    energy = Energy(tmp_path)
    (tmp_path / "intel-rapl:1/energy_uj").write_text("3500000\n")

    assert energy.measure() == {"joules": 2.5, "why": ""}


def test_energy_that_nobody_tells_has_a_reason(tmp_path):
    """No counter, a counter that began anew: no figure, and why."""
    assert Energy(tmp_path).measure()["joules"] is None
    (tmp_path / "intel-rapl:0").mkdir()
    counter = tmp_path / "intel-rapl:0/energy_uj"
    counter.write_text("5000000")
    energy = Energy(tmp_path)
    counter.write_text("10")

    assert energy.measure() == {"joules": None, "why": "the counter has begun anew"}
