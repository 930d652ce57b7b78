"""The effects of the keys of `telemetry`: what is sent to others."""

import pytest

from deployments.config.config_errors import ConfigError
from deployments.reports.traces import Traces
from tests.support.small_config import config_of


def traces() -> None:
    def make() -> None:
        raise ConfigError("a provider is made")

    Traces(config_of("telemetry.traces", False).telemetry, make=make)
    with pytest.raises(ConfigError, match="a provider is made"):
        Traces(config_of("telemetry.traces", True).telemetry, make=make)
