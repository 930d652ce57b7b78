"""LangChain's standard integration tests of chat models, unmodified, by its own packages: ChatOpenAI on chat
completions and on Responses, ChatAnthropic on Messages. What a text model can't do (images, audio) isn't declared."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kept_rows import REQUEST_S, TOKENS_MAX, Given, add_row, read_keys
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL, MODEL = "SCOREBOARD_URL", "SCOREBOARD_MODEL"
COMMON: dict[str, Any] = {
    "api_key": "sk-none",
    "temperature": 0.0,
    "max_tokens": TOKENS_MAX,
    "timeout": REQUEST_S,
    "max_retries": 0,
}


class _Standard(ChatModelIntegrationTests):
    client: type[BaseChatModel] = ChatOpenAI
    own: ClassVar[Mapping[str, Any]] = {}
    path = "/v1"

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return self.client

    @property
    def chat_model_params(self) -> dict[str, Any]:
        address = {"base_url": os.environ[URL].removesuffix("/v1") + self.path, "model": os.environ[MODEL]}
        return COMMON | address | self.own

    @property
    def supports_json_mode(self) -> bool:
        return self.client is ChatOpenAI

    @property
    def supports_image_inputs(self) -> bool:
        return False


class TestChat(_Standard):
    """ChatOpenAI on chat completions."""

    own: ClassVar = {"stream_usage": True}


class TestResponses(_Standard):
    """ChatOpenAI on Responses."""

    own: ClassVar = {"use_responses_api": True}


class TestMessages(_Standard):
    """ChatAnthropic on Messages."""

    client = ChatAnthropic
    path = ""


class Recorder:
    """Writes a row for each test that ran, and runs none that has one, nor any behind the time."""

    def __init__(self, given: Given, seed: int, ends_s: float) -> None:
        self.given, self.seed, self.ends_s = given, seed, ends_s
        self.known = read_keys(given.rows)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is known."""
        items[:] = [item for item in items if (self._name(item.nodeid), self.seed) not in self.known]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """End the run where the time is over."""
        if time.monotonic() > self.ends_s:
            pytest.exit(f"the {self.given.minutes:g} minutes are over at {item.name}, seed {self.seed}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the row of a test that passed or failed; a skipped one isn't declared."""
        expected = hasattr(report, "wasxfail")
        if report.when != "call" and not report.failed:
            return
        if report.skipped and not expected:
            return
        name = self._name(report.nodeid)
        why = str(report.longrepr).strip().splitlines()[-1] if report.failed else getattr(report, "wasxfail", "")
        row = {"case": name, "seed": self.seed, "kind": name.partition(".")[0], "right": report.passed}
        row |= {"wrong": why.rpartition("/site-packages/")[2]}
        tail = [str(report.longrepr)[-4000:]] if report.failed else []
        add_row(self.given.rows, row | {"in": 0, "out": 0, "seconds": report.duration, "answers": tail})

    def _name(self, nodeid: str) -> str:
        return ".".join(nodeid.split("::")[-2:]).removeprefix("Test")


def main() -> None:
    """Run the tests, once for each seed."""
    given = Given.parse()
    os.environ[URL], os.environ[MODEL] = given.url, given.model
    ends_s = time.monotonic() + 60 * given.minutes
    sys.dont_write_bytecode = True
    for seed in given.seeds:
        quiet = ["-q", "--no-header", "-p", "no:cacheprovider", "--benchmark-disable", "--asyncio-mode=auto"]
        # The clients keep connections for later tests, which must then run on the same loop.
        quiet += ["-o", "asyncio_default_test_loop_scope=session"]
        pytest.main(
            [*quiet, "--rootdir", str(Path(__file__).parent), __file__], plugins=[Recorder(given, seed, ends_s)]
        )


if __name__ == "__main__":
    main()
