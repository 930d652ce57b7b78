"""What the users of the load test saw: times by tier and outcome, as rows for a JSON file and as a page with plots.

    total   from the moment at which a request was due to its last byte
    ttft    from that moment to the first text or call of a stream
    gap     between two pieces of a stream, each of them

All in milliseconds. A request that was sent late, since the generator was busy, has waited from when it was due. The
page is one file without scripts: its plots are the medians and the 95th percentiles of each `BUCKET_S` seconds.
"""

from __future__ import annotations

import html
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loadtests.series import Series

KINDS = ("total", "ttft", "gap")
BUCKET_S = 5.0
BUCKET_KEPT_MAX = 500
SHARES = (50, 95, 99)
WIDTH, HEIGHT, EDGE = 760, 180, 40
STYLE = "body{font:14px system-ui;margin:2em;max-width:60em}table{border-collapse:collapse}td,th{padding:2px 10px;\
text-align:right}td:nth-child(-n+3),th:nth-child(-n+3){text-align:left}tr:nth-child(even){background:#f3f3f3}\
svg text{font:11px system-ui}.p50{stroke:#1668b8}.p95{stroke:#d0661c}polyline{fill:none;stroke-width:1.5}"


class Name(NamedTuple):
    """What a series is of. `how`: `stream` or `whole`."""

    kind: str
    tier: str
    outcome: str
    how: str


@dataclass(slots=True)
class Tally:
    """Everything that was measured. `counts`: requests, upstream calls, clients that left and so on."""

    began_s: float = field(default_factory=time.perf_counter)
    series: dict[Name, Series] = field(default_factory=dict)
    buckets: dict[tuple[str, int], Series] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, name: Name, took_ms: float) -> None:
        """Note one value, of now."""
        self.series.setdefault(name, Series()).add(took_ms)
        bucket = (name.kind, int((time.perf_counter() - self.began_s) / BUCKET_S))
        self.buckets.setdefault(bucket, Series(BUCKET_KEPT_MAX)).add(took_ms)

    @property
    def calls_per_request(self) -> float | None:
        """Upstream calls per request, of those of which the server has reported them."""
        return self.counts["calls"] / self.counts["requests"] if self.counts["requests"] else None

    def rows(self) -> list[dict[str, Any]]:
        """Build one row for each series, by its name."""
        return [
            {
                **name._asdict(),
                "count": series.count,
                **{f"p{share}": round(series.quantile(share / 100), 3) for share in SHARES},
                "max": round(series.most, 3),
            }
            for name, series in sorted(self.series.items())
        ]

    def figures(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        counts = {"left": 0, "open_at_end": 0, "parallel": 0, "shed": 0} | dict(self.counts)
        return {"calls_per_request": self.calls_per_request, "counts": counts, "rows": self.rows()}

    def page(self) -> str:
        """Render all of it, to look at."""
        figures = self.figures()
        lines = [
            f"<!doctype html><meta charset=utf-8><title>Load</title><style>{STYLE}</style><h1>Load</h1>",
            f"<p>{html.escape(', '.join(f'{name}: {count}' for name, count in figures['counts'].items()))}; ",
            f"upstream calls per request: {_format_value(figures['calls_per_request'])}</p>",
        ]
        for kind in KINDS:
            lines += [f"<h2>{kind}, ms</h2>", self._plot(kind), self._table(kind)]
        return "\n".join(lines) + "\n"

    def _table(self, kind: str) -> str:
        heads = ("tier", "outcome", "how", "count", *(f"p{share}" for share in SHARES), "max")
        rows = (row for row in self.rows() if row["kind"] == kind)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_format_value(row[head]))}</td>" for head in heads) + "</tr>"
            for row in rows
        )
        return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"

    def _plot(self, kind: str) -> str:
        """Draw two lines over time, and the scales' ends."""
        found = {at: series for (of, at), series in sorted(self.buckets.items()) if of == kind}
        if not found:
            return "<p>nothing was measured</p>"
        last, most = max(found) or 1, max(series.quantile(0.95) for series in found.values()) or 1.0
        lines = ""
        for share in (50, 95):
            points = (
                f"{EDGE + at / last * (WIDTH - 2 * EDGE):.1f},{HEIGHT - EDGE - value / most * (HEIGHT - 2 * EDGE):.1f}"
                for at, value in ((at, series.quantile(share / 100)) for at, series in found.items())
            )
            lines += f'<polyline class="p{share}" points="{" ".join(points)}"/>'
        texts = (
            f'<text x="{EDGE}" y="{EDGE - 6}">{most:.0f} ms; blue: median, orange: 95th percentile</text>'
            f'<text x="{EDGE}" y="{HEIGHT - EDGE + 16}">0 s</text>'
            f'<text x="{WIDTH - EDGE}" y="{HEIGHT - EDGE + 16}" text-anchor="end">{(last + 1) * BUCKET_S:.0f} s</text>'
        )
        frame = f'<path d="M{EDGE} {EDGE}V{HEIGHT - EDGE}H{WIDTH - EDGE}" fill="none" stroke="#999"/>'
        return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{frame}{lines}{texts}</svg>'


def _format_value(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
