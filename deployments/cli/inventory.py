"""`mlx-stack-serve models`: what models are on this machine, how large they are and which tiers use them.

It looks at this server's cache, the hub's cache and the folders that the configuration names. A folder of the cache
that no tier uses may be deleted; so may `unfinished` ones, which the next fetch continues or sweeps away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.models import cache_folder as store
from deployments.models.artifact import find_on_disk
from deployments.models.catalog import choose_here
from deployments.models.sources import parse_source

__all__ = ["DiskItem", "inventory", "list_disk_items"]

UNUSED = "no tier of this configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskItem:
    """One thing on disk. `used_by`: the tiers whose model it is."""

    name: str
    size_bytes: int
    used_by: tuple[str, ...]
    path: Path


def inventory(models: Iterable[tuple[str, str]], *, cache_dir: Path | None = None) -> Iterator[str]:
    """Write the table, line by line, for the models of (role, model) pairs; then what is configured and not here."""
    models = list(models)
    users, missing = _find_users(models, cache_dir)
    found = list_disk_items(users, cache_dir=cache_dir)
    for one in found:
        used = ", ".join(one.used_by) if one.used_by else UNUSED
        yield f"{_format_size(one.size_bytes):>9}  {one.name}\n           used by {used}; in {one.path}"
    yield f"{_format_size(sum(one.size_bytes for one in found)):>9}  in all"
    for source, roles in missing.items():
        yield f"  missing  {source}\n           wanted by {', '.join(roles)}: `mlx-stack-serve pull {roles[0]}`"


def list_disk_items(users: Mapping[Path, tuple[str, ...]], *, cache_dir: Path | None = None) -> list[DiskItem]:
    """List everything that is on disk, the largest first. `users`: the tiers by the folder of their model."""
    cache = cache_dir or store.default_cache_dir()
    found = [*_find_own(cache / "models", users), *_find_downloads(cache / "downloads")]
    found += _find_in_hub(users)
    known = {one.path for one in found}
    beside = [(path, roles) for path, roles in users.items() if path not in known and not _is_within(path, known)]
    found += [DiskItem(name=f"path:{p.name}", size_bytes=_count_bytes(p), used_by=roles, path=p) for p, roles in beside]
    return sorted(found, key=lambda one: -one.size_bytes)


def _find_users(
    models: Iterable[tuple[str, str]], cache_dir: Path | None
) -> tuple[dict[Path, tuple[str, ...]], dict[str, list[str]]]:
    """Find who uses which folder, and who wants what isn't here."""
    users: dict[Path, tuple[str, ...]] = {}
    missing: dict[str, list[str]] = {}
    for role, model in models:
        source = choose_here(role, model).source
        try:
            artifact = find_on_disk(parse_source(source), cache_dir=cache_dir)
        except ValueError:  # no source at all: the tier itself says so
            artifact = None
        if artifact is None:
            missing.setdefault(source, []).append(role)
        else:
            users[artifact.path] = (*users.get(artifact.path, ()), role)
    return users, missing


def _find_own(folder: Path, users: Mapping[Path, tuple[str, ...]]) -> Iterator[DiskItem]:
    for path in sorted(folder.glob("*")):
        if not path.is_dir():
            continue
        unfinished = path.name.startswith(".")
        name = f"unfinished: {path.name}" if unfinished else _read_source(path)
        yield DiskItem(name=name, size_bytes=_count_bytes(path), used_by=users.get(path, ()), path=path)


def _find_downloads(folder: Path) -> Iterator[DiskItem]:
    for path in sorted(folder.glob("*")):
        if size_bytes := _count_bytes(path):
            yield DiskItem(name=f"unfinished download: {path.name}", size_bytes=size_bytes, used_by=(), path=path)


def _read_source(path: Path) -> str:
    try:
        return str(json.loads((path / "artifact.json").read_text(encoding="utf-8"))["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return path.name


def _find_in_hub(users: Mapping[Path, tuple[str, ...]]) -> Iterator[DiskItem]:
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
            used = [role for path, roles in users.items() if _is_within(path, {repository.repo_path}) for role in roles]
            yield DiskItem(
                name=f"hf:{repository.repo_id}",
                size_bytes=repository.size_on_disk,
                used_by=tuple(used),
                path=repository.repo_path,
            )


def _is_within(path: Path, parents: Iterable[Path]) -> bool:
    return any(parent in path.parents for parent in parents)


def _count_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"
