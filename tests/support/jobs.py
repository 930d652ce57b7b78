"""Jobs for workers: functions whose arguments and results have types, as those of the server have."""

import os
import re
import time

from deployments.errors import ApiError


def join(a: str, b: str) -> str:
    """Join two names."""
    return f"{a}/{b}"


def fail(text: str) -> int:
    """Fail with an error of Python's own."""
    return int(text)


def refuse(param: str) -> None:
    """Fail with an error of the server's."""
    raise ApiError("invalid_tools", "too few", param=param, retry_after_s=7.5)


def find_pid() -> int:
    """Say which process this is."""
    return os.getpid()


def make_bytes(count: int) -> bytes:
    """Make a large result."""
    return bytes(count)


def search(pattern: str, text: str) -> bool:
    """Search; some patterns take for ever, in C code."""
    return re.search(pattern, text) is not None


def wait(seconds: float) -> None:
    """Take so long."""
    time.sleep(seconds)


def end(code: int) -> None:
    """End the process."""
    os._exit(code)
