"""`mlx-stack-serve doctor --report`: one file that a person can send with a question, and that names nobody.

Invariants: no text of a request, an answer or an error; no key, user, host, address or path. An unusual tier's name is
replaced by its number, a model that isn't public by its kind, a hosted tier's host by its preset or where it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from deployments import __version__
from deployments.cli.service.init_system import run_program
from deployments.config.app_config import AppConfig
from deployments.config.loopback import is_loopback
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, TierBase
from deployments.evaluate.asking.machine_facts import describe_machine, list_versions
from deployments.memory.sensors.computing import Computing, find_computing
from deployments.memory.sensors.macos import LEVEL, SystemKernel
from deployments.models.artifact import find_on_disk
from deployments.models.catalog import choose_here, weight_bytes_of
from deployments.models.sources import parse_source
from deployments.state.history import History
from deployments.state.incident_record import IncidentKind
from deployments.state.records import Query

PACKAGES = ("ray", "mlx", "mlx-lm", "mlx-metal", "mlx-cpu", "transformers", "pydantic", "starlette", "aiohttp")
USUAL = frozenset({"fast", "standard", "longctx", "premium"})
# Whose models name nobody else: a source of the catalogue, and of publishers that everybody takes models from.
_PUBLIC = re.compile(r"hf:(?:mlx-community|lmstudio-community|Qwen)/[\w.-]+@[\w.-]+(?:#[\w.-]+)?")
KINDS = frozenset(kind.value for kind in IncidentKind)
WEEK_S = 7 * 86_400.0
_NEWEST = 20
_ASK_GPU = "import json, mlx.core as mx; print(json.dumps(mx.device_info()))"
GPU = ("architecture", "max_recommended_working_set_size", "max_buffer_length", "memory_size", "total_memory")


def write_report(config: AppConfig, journal: Path, path: Path) -> int:
    """Show the report, and write it to `path`; return the exit code."""
    text = json.dumps(_build_report(config, journal, time.time()), indent=2) + "\n"
    print(text)  # noqa: T201
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"{path} is there already: name another file, or remove it", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:
        print(f"{path}: can't be written: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
    print(f"{path} holds what stands above, and nothing else. Nothing was sent.")  # noqa: T201
    return 0


def _build_report(config: AppConfig, journal: Path, now_s: float) -> dict[str, Any]:
    names = {name: name if name in USUAL else f"tier {number}" for number, name in enumerate(config.tiers, 1)}
    return {
        "report": 1,
        "versions": {**dict.fromkeys(PACKAGES), **list_versions(PACKAGES), "mlx-stack-serve": __version__},
        "machine": _describe_machine(),
        "tiers": {names[name]: _describe_tier(name, tier) for name, tier in config.tiers.items()},
        "chain": [names.get(name, "?") for name in config.reliability.escalation.chain],
        "incidents": _list_incidents(journal, names, now_s),
    }


def _describe_machine() -> dict[str, Any]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return describe_machine() | {
        "macos": platform.mac_ver()[0] or None,
        "available_bytes": memory.available,
        "swap_bytes": swap.total,
        "swap_used_bytes": swap.used,
        "on_battery": None if battery is None else battery.power_plugged is False,
        "limits": _find_limits(),
    }


def _find_limits() -> dict[str, Any]:
    """Find what the GPU allows; on a Mac what a person allows to be wired, and the kernel's level, too."""
    computing = find_computing()
    known: dict[str, Any] = {}
    if computing is Computing.CPU:
        return known
    if computing is Computing.METAL:
        kernel = SystemKernel()
        known |= {name: kernel.sysctl_u32(name) for name in ("iogpu.wired_limit_mb", LEVEL)}
    with contextlib.suppress(ValueError):  # no package, or no GPU for this user
        info = json.loads(run_program([sys.executable, "-P", "-c", _ASK_GPU]).out)
        known |= {name: info.get(name) for name in GPU}
    return known


def _describe_tier(name: str, tier: TierBase) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": getattr(tier, "kind", None)}
    facts |= {"replicas": [tier.min_replicas, tier.max_replicas], "context_tokens": tier.context_tokens}
    if isinstance(tier, HostedTierConfig):
        host = urlsplit(tier.base_url or "").hostname
        return facts | {"where": tier.preset or ("loopback" if is_loopback(host) else "elsewhere")}
    if not isinstance(tier, MlxTierConfig):
        return facts
    source = choose_here(name, tier.model).source
    # Of a model that isn't public only the kind of its source.
    public = weight_bytes_of(source) is not None or _PUBLIC.fullmatch(source) is not None
    shown = source if public else f"{source.partition(':')[0]}:"
    facts |= {"auto": tier.model == "auto", "model": shown, "memory_bytes": tier.memory_bytes}
    try:
        artifact = find_on_disk(parse_source(source))
    except (OSError, ValueError):
        return facts | {"on_disk": None}
    if artifact is None:
        return facts | {"on_disk": False}
    return facts | {"on_disk": True, "weight_bytes": artifact.weight_bytes, "quantization": artifact.quantization}


def _list_incidents(journal: Path, names: Mapping[str, str], now_s: float) -> dict[str, Any]:
    """Count the last week's incidents, and list the newest; None where no journal can be read."""
    if not journal.is_file():
        return {"counted": None, "newest": []}
    try:
        with contextlib.closing(History(journal)) as history:
            found = history.ask(Query(since_s=now_s - WEEK_S, limit=1000))
    except sqlite3.Error:
        return {"counted": None, "newest": []}
    kinds = [one.get("kind") if one.get("kind") in KINDS else "other" for one in found]
    newest = []
    for kind, one in zip(kinds[:_NEWEST], found, strict=False):
        hours = math.floor((now_s - one["at"]) / 3600)
        newest.append({"kind": kind, "tier": names.get(str(one.get("tier"))), "hours_ago": hours})
    return {"counted": dict(Counter(kinds)), "newest": newest}
