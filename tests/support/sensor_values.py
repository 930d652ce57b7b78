"""What a sensor's sample says, for the tests of sensors."""

from deployments.memory.sensors.sensor import Sample


def values(sample: Sample) -> dict[str, float | None]:
    return {reading.source: reading.value for reading in sample.readings}
