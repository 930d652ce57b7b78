"""What every command waits for is short."""

from __future__ import annotations

import subprocess
import sys


def test_the_parser_is_made_without_ray():
    """A Tab and a question to a server wait for no import of the server itself."""
    code = "import sys; from deployments.__main__ import build_parser; build_parser(); print('ray' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout == "False\n"
