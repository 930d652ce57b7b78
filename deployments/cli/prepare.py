"""Fetch and prepare models: `mlx-stack-serve prepare` and `pull`.

    prepare             what the tiers load when the server starts
    prepare --behind    the rest, once the server can answer: in the background of `serve`, at low priority
    pull                everything that is named

A model that can't be had is no error of `prepare`: its tier will be unavailable with the same reason. `pull` reports it
as one. Before a fetch its size and time are printed. An interrupted fetch continues where it was.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from deployments.config.config_errors import ConfigError
from deployments.config.tier_config import MlxTierConfig
from deployments.models.artifact import Artifact, find_on_disk, resolve
from deployments.models.catalog import ModelChoice, choose_here, weight_bytes_of
from deployments.models.downloads import format_size
from deployments.models.presence import look
from deployments.models.sources import ModelSource, ModelUnavailable, parse_source
from deployments.running.background_fetch import is_offline
from deployments.serve_file import ConfigFile

__all__ = ["fetch_in_background", "list_models", "prepare", "pull"]

NICENESS = 10
PERCENT = re.compile(r"(\d+) % of ")
SHOWN_EVERY = 10
LINE_BYTES_PER_S = 10_000_000


def prepare(models: Iterable[tuple[str, str]], *, cache_dir: Path | None = None) -> int:
    """Prepare the models of (role, model) pairs that are loaded at the start, report what was done, and return how
    many of them can't be had."""
    missing = 0
    for choice, names in _group(models).items():
        found = look(names[0], choice, cache_dir=cache_dir)
        if choice.fetch == "load" or found.state == "here":
            missing += not _fetch(choice, names, cache_dir)
        else:
            _tell(f"{', '.join(names)}: {choice.source}\n  {choice.why}\n  {found.words}")
    return missing


def pull(models: Iterable[tuple[str, str]], *, cache_dir: Path | None = None) -> int:
    """Prepare all models of (role, model) pairs, one after the other, and return how many can't be had. One that this
    machine can't hold is left out where there are others."""
    groups = _group(models)
    missing = 0
    for choice, names in groups.items():
        if choice.unfit and len(groups) > 1:
            _tell(f"{', '.join(names)}: {choice.source}\n  left out: {choice.unfit}")
        else:
            missing += not _fetch(choice, names, cache_dir)
    return missing


def list_models(file: ConfigFile, name: str | None = None) -> list[tuple[str, str]]:
    """List roles and models of the `mlx` tiers, or of the one that is named.

    Raises:
        ConfigError: there is no such tier.
    """
    tiers = {role: tier for role, tier in file.args.tiers.items() if isinstance(tier, MlxTierConfig)}
    if name is not None and name not in tiers:
        known = ", ".join(tiers) or "none"
        raise ConfigError(f"there is no mlx tier {name!r} ({known}), and a model source has a colon (hf:ORG/NAME@main)")
    return [(role, tier.model) for role, tier in tiers.items() if name in (None, role)]


def fetch_in_background(
    models: Iterable[tuple[str, str]], *, cache_dir: Path | None = None, environ: Mapping[str, str] = os.environ
) -> int:
    """Prepare what is fetched behind a running server, at low priority; return how many can't be had."""
    if is_offline(environ):
        _tell("HF_HUB_OFFLINE is set: nothing is fetched")
        return 0
    os.nice(NICENESS)
    wanted = {choice: names for choice, names in _group(models).items() if choice.fetch == "background"}
    return sum(
        not _fetch(choice, names, cache_dir)
        for choice, names in wanted.items()
        if not choice.unfit and look(names[0], choice, cache_dir=cache_dir).state == "missing"
    )


def _group(models: Iterable[tuple[str, str]]) -> dict[ModelChoice, list[str]]:
    """Group the roles by what is chosen for them: a model that two tiers name is fetched once."""
    roles: dict[ModelChoice, list[str]] = {}
    for role, model in models:
        roles.setdefault(choose_here(role, model), []).append(role)
    return roles


def _fetch(choice: ModelChoice, names: list[str], cache_dir: Path | None) -> bool:
    """Prepare one model and report how it went; return whether it is there."""
    _tell(f"{', '.join(names)}: {choice.source}\n  {choice.why}")
    try:
        source = parse_source(choice.source)
        _tell_size(source, cache_dir)
        artifact = resolve(source, cache_dir=cache_dir, say=_tell_indented)
    except (ModelUnavailable, ValueError) as error:
        _tell(f"  not available: {error}")
        return False
    _tell(f"  ready: {_describe(artifact)}")
    return True


def _tell_size(source: ModelSource, cache_dir: Path | None) -> None:
    """Say how much is to be fetched, and how long that takes, before it begins; nothing of what is here."""
    size_bytes = source.size_bytes or weight_bytes_of(source.text)
    if size_bytes and find_on_disk(source, cache_dir=cache_dir) is None:
        minutes = max(1, round(size_bytes / LINE_BYTES_PER_S / 60))
        _tell(
            f"  {format_size(size_bytes)} to fetch: about {minutes} min at {LINE_BYTES_PER_S // 1_000_000} MB/s; "
            "Ctrl-C loses nothing that has arrived"
        )


def _describe(artifact: Artifact) -> str:
    size = f"{artifact.weight_bytes / 1e6:.0f} MB"
    facts = [
        size,
        artifact.quantization,
        artifact.context_tokens and f"{artifact.context_tokens} tokens of context",
    ]
    return ", ".join(str(fact) for fact in facts if fact) + f", in {artifact.path}"


def _tell_indented(words: str) -> None:
    """Tell a stage; of the percentages every tenth, and none where a bar shows them."""
    share = PERCENT.match(words)
    if share is None or (not sys.stderr.isatty() and int(share[1]) % SHOWN_EVERY == 0):
        _tell(f"  {words}")


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # the progress bars go to stderr: keep the two in order
