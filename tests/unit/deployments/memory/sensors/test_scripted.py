"""The scripted sensor: a play in time, or a word that is the level now."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deployments.memory.monitor import _make_sensor
from deployments.memory.sensors.scripted import ScriptedSensor, _parse
from deployments.memory.sensors.sensor import NS_PER_S
from tests.support.sensor_values import values


def test_a_play_in_time(tmp_path: Path):
    """The last line whose time has come counts; time begins with the first reading."""
    path = tmp_path / "play"
    path.write_text("0 normal\n2.5 warn  # here it begins\n5 used_share=0.97 psi=3\n")
    sensor = _make_sensor(f"scripted:{path}")
    assert isinstance(sensor, ScriptedSensor)
    seen = [values(sensor.read(100 * NS_PER_S + int(at * NS_PER_S))) for at in (0, 2.4, 2.5, 7)]

    assert seen == [{"scripted": 1.0}, {"scripted": 1.0}, {"scripted": 2.0}, {"used_share": 0.97, "psi": 3.0}]


def test_a_word_is_the_level_now(tmp_path: Path):
    """Whoever writes the file turns the knob; a missing or unreadable one is unknown, with the reason."""
    path = tmp_path / "knob"
    sensor = ScriptedSensor(str(path))
    for missing in (sensor, ScriptedSensor("~nobody-of-that-name/pressure.txt")):
        assert "No such file" in missing.read(1).problem
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
        steps = _parse(text)
    except ValueError:
        return
    assert steps == sorted(steps, key=lambda step: step[0])
