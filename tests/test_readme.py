"""README.md is true: what can be made from the code is, and what can be run is run (see also `e2e`)."""

from __future__ import annotations

import re

import pytest

from tests import readme
from tests.test_config_effects import all_keys

TEXT = readme.README.read_text(encoding="utf-8")


def test_tree_and_errors_are_those_of_the_code():
    """The file tree and the error table are what `make readme` writes."""
    assert readme.written(TEXT) == TEXT


def test_every_configuration_key_is_explained_and_no_other():
    """The table of keys is complete, and names nothing that doesn't exist."""
    section = TEXT.partition("## Configuration")[2].partition("\n## ")[0]
    shown = set(re.findall(r"^\| `([a-z][\w.A-Z]+)` \|", section, re.MULTILINE))
    # A key that all tier kinds have is shown once; the four timeouts of a tier are the server's.
    own = {re.sub(r"^tiers\.(mlx|hosted|scripted)\.timeouts\..*", "tiers.NAME.timeouts", key) for key in all_keys()}
    common = {key.rpartition(".")[2] for key in shown if key.startswith("tiers.NAME.")}
    expected = {
        f"tiers.NAME.{key.rpartition('.')[2]}" if key.rpartition(".")[2] in common and key.startswith("tiers.") else key
        for key in own
    }
    expected = {re.sub(r"^tiers\.(mlx|hosted|scripted)\.", lambda m: f"tiers.{m[1].upper()}.", key) for key in expected}

    assert shown == expected


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, re.MULTILINE))))
def test_every_make_target_exists(target):
    """No command of the README is missing from the Makefile."""
    makefile = (readme.ROOT / "Makefile").read_text(encoding="utf-8")

    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_header_is_explained_and_no_other():
    """The headers that the code can send are those of the table."""
    source = (readme.ROOT / "deployments/wire/report.py").read_text(encoding="utf-8")
    sent = set(re.findall(r'"(X-MLX-Stack-[A-Za-z-]+)"', source))
    shown = set(re.findall(r"^\| `(X-MLX-Stack-[A-Za-z-]+)`", TEXT, re.MULTILINE))

    assert shown == sent
