"""Models on this machine: `mlx-stack-serve prepare`, `pull` and `models`.

`prepare` fetches what the tiers load at the start; `prepare --behind` the rest, in the background of `serve`; `pull`
everything that is named. A model that can't be had is no error of `prepare`: its tier says why. `models` lists the
caches and the configured folders; the next fetch continues `unfinished` ones or sweeps them away.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from deployments.config.config_errors import ConfigError
from deployments.config.tier_config import MlxTierConfig
from deployments.graph.serve_file import ConfigFile
from deployments.models import cache_folder as store
from deployments.models.artifact import Artifact, find_on_disk, resolve
from deployments.models.catalog import ModelChoice, choose_here, weight_bytes_of
from deployments.models.downloads import count_bytes, format_size
from deployments.models.presence import look
from deployments.models.sources import ModelSource, ModelUnavailable, parse_source
from deployments.models.weights import read_object
from deployments.running.background_fetch import is_offline

_NICENESS = 10
_PERCENT = re.compile(r"(\d+) % of ")
_SHOWN_EVERY = 10
_LINE_BYTES_PER_S = 10_000_000


def prepare(models: Iterable[tuple[str, str]]) -> int:
    """Prepare the models of (role, model) pairs that are loaded at the start; return how many can't be had."""
    missing = 0
    for choice, names in _group(models).items():
        found = look(names[0], choice)
        if choice.fetch == "load" or found.state == "here":
            missing += not _fetch(choice, names)
        else:
            click.echo(f"{', '.join(names)}: {choice.source}\n  {choice.why}\n  {found.words}")
    return missing


def pull(models: Iterable[tuple[str, str]]) -> int:
    """Prepare all models of (role, model) pairs; return how many can't be had. One of several that this machine can't
    hold is left out."""
    groups, missing = _group(models), 0
    for choice, names in groups.items():
        if choice.unfit and len(groups) > 1:
            click.echo(f"{', '.join(names)}: {choice.source}\n  left out: {choice.unfit}")
        else:
            missing += not _fetch(choice, names)
    return missing


def list_models(file: ConfigFile, name: str | None = None) -> list[tuple[str, str]]:
    """List roles and models of the `mlx` tiers, or of the one that is named. Raises ConfigError: it isn't there."""
    tiers = {role: tier for role, tier in file.args.tiers.items() if isinstance(tier, MlxTierConfig)}
    if name is not None and name not in tiers:
        known = ", ".join(tiers) or "none"
        raise ConfigError(f"there is no mlx tier {name!r} ({known}), and a model source has a colon (hf:ORG/NAME@main)")
    return [(role, tier.model) for role, tier in tiers.items() if name in (None, role)]


def fetch_in_background(models: Iterable[tuple[str, str]], environ: Mapping[str, str] = os.environ) -> int:
    """Prepare what is fetched behind a running server, at low priority; return how many can't be had."""
    if is_offline(environ):
        click.echo("HF_HUB_OFFLINE is set: nothing is fetched")
        return 0
    os.nice(_NICENESS)
    wanted = {choice: names for choice, names in _group(models).items() if choice.fetch == "background"}
    return sum(
        not _fetch(choice, names)
        for choice, names in wanted.items()
        if not choice.unfit and look(names[0], choice).state == "missing"
    )


def _group(models: Iterable[tuple[str, str]]) -> dict[ModelChoice, list[str]]:
    """Group the roles by what is chosen for them: a model that two tiers name is fetched once."""
    roles: dict[ModelChoice, list[str]] = {}
    for role, model in models:
        roles.setdefault(choose_here(role, model), []).append(role)
    return roles


def _fetch(choice: ModelChoice, names: list[str]) -> bool:
    click.echo(f"{', '.join(names)}: {choice.source}\n  {choice.why}")
    try:
        source = parse_source(choice.source)
        _tell_size(source)
        artifact = resolve(source, say=_tell_indented)
    except (ModelUnavailable, ValueError) as error:
        click.echo(f"  not available: {error}")
        return False
    click.echo(f"  ready: {_describe(artifact)}")
    return True


def _tell_size(source: ModelSource) -> None:
    """Say how much is to be fetched, and how long that takes, before it begins; nothing of what is here."""
    size_bytes = source.size_bytes or weight_bytes_of(source.text)
    if size_bytes and find_on_disk(source) is None:
        minutes = max(1, round(size_bytes / _LINE_BYTES_PER_S / 60))
        click.echo(
            f"  {format_size(size_bytes)} to fetch: about {minutes} min at {_LINE_BYTES_PER_S // 1_000_000} MB/s; "
            "Ctrl-C loses nothing that has arrived"
        )


def _describe(artifact: Artifact) -> str:
    context = artifact.context_tokens and f"{artifact.context_tokens} tokens of context"
    facts = [f"{artifact.weight_bytes / 1e6:.0f} MB", artifact.quantization, context]
    return ", ".join(str(fact) for fact in facts if fact) + f", in {artifact.path}"


def _tell_indented(words: str) -> None:
    """Tell a stage; of the percentages every tenth, and none where a bar shows them."""
    share = _PERCENT.match(words)
    if share is None or (not sys.stderr.isatty() and int(share[1]) % _SHOWN_EVERY == 0):
        click.echo(f"  {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _DiskItem:
    """One thing on disk. `used_by`: the tiers whose model it is."""

    name: str
    size_bytes: int
    path: Path
    used_by: tuple[str, ...] = ()


def inventory(models: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Write the table, line by line, for the models of (role, model) pairs; then what is configured and not here."""
    users, missing = _find_users(models)
    found = _list_disk_items(users)
    for one in found:
        used = ", ".join(one.used_by) or "no tier of this configuration"
        yield f"{format_size(one.size_bytes):>9}  {one.name}\n           used by {used}; in {one.path}"
    yield f"{format_size(sum(one.size_bytes for one in found)):>9}  in all"
    for source, roles in missing.items():
        yield f"  missing  {source}\n           wanted by {', '.join(roles)}: `mlx-stack-serve pull {roles[0]}`"


def _list_disk_items(users: Mapping[Path, tuple[str, ...]]) -> list[_DiskItem]:
    """List everything that is on disk, the largest first. `users`: the tiers by the folder of their model."""
    cache, found = store.default_cache_dir(), []
    for path in sorted(cache.glob("models/*/")):
        facts = read_object(path / "artifact.json") or {}
        name = f"unfinished: {path.name}" if path.name.startswith(".") else str(facts.get("source", path.name))
        found.append(_DiskItem(name=name, size_bytes=count_bytes(path, "*"), used_by=users.get(path, ()), path=path))
    for path in sorted(cache.glob("downloads/*")):
        name, size_bytes = f"unfinished download: {path.name}", count_bytes(path, "*")
        if size_bytes:
            found.append(_DiskItem(name=name, size_bytes=size_bytes, path=path))
    found += _find_in_hub(users)
    known = {one.path for one in found}
    for path, roles in users.items():
        if known.isdisjoint((path, *path.parents)):
            size_bytes = count_bytes(path, "*")
            found.append(_DiskItem(name=f"path:{path.name}", size_bytes=size_bytes, used_by=roles, path=path))
    return sorted(found, key=lambda one: -one.size_bytes)


def _find_users(models: Iterable[tuple[str, str]]) -> tuple[dict[Path, tuple[str, ...]], dict[str, list[str]]]:
    users: dict[Path, tuple[str, ...]] = {}
    missing: dict[str, list[str]] = {}
    for role, model in models:
        source = choose_here(role, model).source
        try:
            artifact = find_on_disk(parse_source(source))
        except ValueError:  # no source at all: the tier itself says so
            artifact = None
        if artifact is None:
            missing.setdefault(source, []).append(role)
        else:
            users[artifact.path] = (*users.get(artifact.path, ()), role)
    return users, missing


def _find_in_hub(users: Mapping[Path, tuple[str, ...]]) -> Iterator[_DiskItem]:
    """Find the models of the hub's cache; a revision's files are links into its repository's blobs, counted once."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in repositories:
        if repository.repo_type == "model":
            place, size_bytes = repository.repo_path, repository.size_on_disk
            used = tuple(role for path, roles in users.items() if place in path.parents for role in roles)
            yield _DiskItem(name=f"hf:{repository.repo_id}", size_bytes=size_bytes, path=place, used_by=used)
