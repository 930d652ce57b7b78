"""Lines and counters: what Ray writes of them, and what must never stand in them."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ray._common.formatters import JSONFormatter
from ray._common.logging_constants import LOGGER_FLATTEN_KEYS, LOGRECORD_STANDARD_ATTRS, LogKey
from ray.exceptions import RayTaskError
from ray.serve._private import constants
from ray.serve._private.logging_utils import ServeFormatter

from deployments.reports.report import report_of
from deployments.telemetry import _TAKEN, log_error, log_info, log_request, session_tag
from tests.support.small_config import REQUEST, config_of, run

SECRET = "QXZJKVWYQXZJ"


class Lines(logging.Handler):
    """What Ray Serve would write, in both of its encodings."""

    def __init__(self) -> None:
        super().__init__()
        self.json: list[dict[str, Any]] = []
        self.text: list[str] = []
        self._as_text = ServeFormatter("replica", "1")

    def emit(self, record: logging.LogRecord) -> None:
        self.json.append(json.loads(JSONFormatter().format(record)))
        self.text.append(self._as_text.format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        raise


@contextlib.contextmanager
def listening() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("ray.serve")
    level, logger.level = logger.level, logging.INFO
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.level = level


@pytest.fixture
def lines() -> Iterator[Lines]:
    with listening() as handler:
        yield handler


def names_of_ray() -> set[str]:
    """Every name that the installed Ray puts into a line, or reads from a record, by itself."""
    serve = {value for key, value in vars(constants).items() if key.startswith("SERVE_LOG_") and isinstance(value, str)}
    core = LOGRECORD_STANDARD_ATTRS | LOGGER_FLATTEN_KEYS | {key.value for key in LogKey}
    return serve | core | constants.SERVE_LOG_UNWANTED_ATTRS


def test_no_field_of_ray_is_overwritten():
    """Our list of taken names holds all of the installed Ray's, but for the request id, which means the same."""
    assert names_of_ray() - _TAKEN == {"request_id"}


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()) | st.binary()
fields = st.dictionaries(st.sampled_from(sorted(names_of_ray() | {"tier", "x"})) | st.text("abc_", min_size=1), values)


@settings(deadline=None)
@given(fields=fields)
@example(fields={"request_id": "\n"})
def test_any_field_gives_a_whole_line(fields):
    """Whatever a field is called and holds: one line of JSON with all of them, and one line of text."""
    fields.pop("event", None)
    with listening() as handler:
        log_info("happened", **fields)
    (shown,), (text,) = handler.json, handler.text

    given_names = {f"{key}_" if key in _TAKEN else key for key, value in fields.items() if value is not None}
    assert given_names <= shown.keys()
    assert shown["event"] == "happened"
    assert "\n" not in text


def test_text_shows_fields_as_words(lines):
    """A person reads `key=value`; a value that isn't one word is quoted, so that nobody can forge a field."""
    log_info("request", request_id="r-1", tier="fast", reason=None, odd='a b=c "d"\nevil=1')

    assert "r-1" in lines.text[0]
    assert lines.text[0].endswith(r'-- request request_id=r-1 tier=fast odd="a b=c \"d\"\nevil=1"')
    assert (lines.json[0]["request_id"], lines.json[0]["tier"]) == ("r-1", "fast")


def test_the_line_of_a_request_names_no_text_and_no_session(lines):
    """Details of attempts, texts and the session's name stay out; the session can be followed by its digest."""
    request = replace(REQUEST, session_id=SECRET, messages=({"role": "user", "content": SECRET},))
    config = config_of("tiers.fast.script", [{"answer": [{"status": 400, "message": SECRET}]}])
    report = report_of(run(config, request=request))
    assert SECRET in json.dumps(report)
    log_request(report)

    assert SECRET not in json.dumps(lines.json) + "".join(lines.text)
    assert lines.json[0]["session"] == session_tag(SECRET)
    assert lines.json[0]["outcome"] == "answered"  # by the next tier


def failing(error: BaseException) -> BaseException:
    """The error as it is once it has been raised because of another one."""
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as inner:
            raise error from inner
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        asyncio.CancelledError(SECRET),
        RayTaskError("f", f"Traceback: OSError: {SECRET}", OSError(SECRET)).as_instanceof_cause(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_stack_of_an_error_is_told_and_not_its_words(lines, error):
    """An exception quotes the value that it choked on. Its type, its cause and its place say enough."""
    log_error("broke", failing(error), request_id="r-1")

    assert SECRET not in json.dumps(lines.json) + "".join(lines.text)
    assert "in failing" in lines.text[0]
    assert "caused by builtins.KeyError" in lines.text[0]
    assert lines.json[0]["error"] == type(error).__name__


def test_the_words_of_the_machine_are_told(lines):
    """A full disk is to be named."""
    log_error("journal", failing(OSError(28, "No space left on device")))

    assert lines.json[0]["words"] == "[Errno 28] No space left on device"
