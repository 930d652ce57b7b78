"""A table of measured figures, put between two markers of loadtests/README.md: with date, machine and command."""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).with_name("README.md")


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison. `measured` and `least` are factors, or seconds where `unit` says so; at most `least` then.
    `rounds` are the values that `measured` is the median of. What isn't a number meets no bar."""

    what: str
    detail: str
    measured: float
    least: float
    unit: str = "x"
    rounds: tuple[float, ...] = ()

    @property
    def met(self) -> bool:
        """Whether the bar is met: as much for a factor, as little for a time."""
        return self.measured >= self.least if self.unit == "x" else self.measured <= self.least

    def row(self) -> str:
        """Build its line of the table."""
        bar = f"{'≥' if self.unit == 'x' else '≤'} {self.least:.3g} {self.unit}"
        met = "yes" if self.met else "**no**"
        spread = f" ({min(self.rounds):.3g} to {max(self.rounds):.3g})" if len(self.rounds) > 1 else ""
        return f"| {self.what} | {self.detail} | {self.measured:.3g} {self.unit}{spread} | {bar} | {met} |"


def write(name: str, command: str, figures: list[Figure], notes: str = "") -> str:
    """Put the table into its place and return it."""
    head = "| what | medians | measured | must | met |\n|---|---|---|---|---|"
    rows = "\n".join(figure.row() for figure in figures)
    text = f"{stamp(command)}\n\n{head}\n{rows}"
    text += f"\n\n{notes}" if notes else ""
    put(name, text)
    return text


def stamp(command: str) -> str:
    """Describe when, where and how it was measured."""
    load = os.getloadavg()[0]
    machine = f"{os.cpu_count()} × {_processor()}, {platform.system()}, load average {load:.1f}"
    when = datetime.date.today().isoformat()
    return f"{when}, {machine}, Python {sys.version.split()[0]}: `{command}`"


def put(name: str, text: str, path: Path = README) -> None:
    """Put a text between its markers."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    page = path.read_text(encoding="utf-8")
    if begin not in page:
        raise ValueError(f"{path.name} has no place named {name}")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page), encoding="utf-8")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
