"""Measurements as a table and as JSON."""

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median
from typing import Any

from ops.bench.run import Found, Measurement
from ops.bench.stages import OURS, Stage


def ratios(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> list[float]:
    """Documents a CPU second over the peer's, round by round."""
    return [a.documents_per_s / b.documents_per_s for a, b in zip(ours, theirs, strict=False)]


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "versions": {name: version(name) for name in ("pyarrow", "numba", "tokenizers", "resiliparse", "duckdb")},
    }


def as_json(stages: Sequence[Stage], found: Found, failed: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    return {"machine": machine(), "stages": [_stage_json(stage, found, failed) for stage in stages]}


def _stage_json(stage: Stage, found: Found, failed: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    ours = found.get((stage.key, OURS), [])
    sides = {}
    for candidate in (OURS, *stage.peers):
        rows = found.get((stage.key, candidate), [])
        sides[candidate] = {
            "documents_per_cpu_s": [row.documents_per_s for row in rows],
            "mb_per_cpu_s": [row.bytes_per_s / 1e6 for row in rows],
            "start_cpu_s": [row.start_cpu_s for row in rows],
            "peak_mb": [row.peak_bytes / 1e6 for row in rows],
            "quality": dict(rows[-1].quality) if rows else {},
            "ratio": ratios(ours, rows) if candidate != OURS else [],
            "failed": failed.get((stage.key, candidate)),
        }
    return {"stage": stage.key, "target": stage.target, "clock": stage.clock, "sides": sides}


def lines_of(stages: Sequence[Stage], found: Found, failed: Mapping[tuple[str, str], str]) -> list[str]:
    """The table for people: medians over rounds, the range of the ratio behind it."""
    about = machine()
    lines = [
        f"{about['date']}, {about['system']}, Python {about['python']}, {about['cores']} cores at a load of {about['load'][0]}",
        "Per CPU second of one single-threaded process and its children. Start: imports, models, compiling, not in the rates.",
    ]
    for stage in stages:
        lines += ["", f"{stage.title} (aimed at: {stage.target:g}x). {stage.clock}."]
        ours = found.get((stage.key, OURS), [])
        for candidate in (OURS, *stage.peers):
            rows = found.get((stage.key, candidate), [])
            if rows:
                lines.append(f"  {candidate:10} {_row(rows)}{_ratio(ours, rows) if candidate != OURS else ''}")
            elif reason := failed.get((stage.key, candidate)):
                lines.append(f"  {candidate:10} not measured: {reason}")
            if rows and rows[-1].quality:
                lines.append("             " + ", ".join(f"{name} {_number(value)}" for name, value in rows[-1].quality.items()))
    return lines


def _row(rows: Sequence[Measurement]) -> str:
    documents, megabytes = median(row.documents_per_s for row in rows), median(row.bytes_per_s for row in rows) / 1e6
    start, peak = median(row.start_cpu_s for row in rows), max(row.peak_bytes for row in rows) / 1e6
    return f"{documents:10,.0f} docs/s {megabytes:9,.2f} MB/s {peak:7,.0f} MB peak {start:6.1f} s start"


def _ratio(ours: Sequence[Measurement], rows: Sequence[Measurement]) -> str:
    found = ratios(ours, rows)
    return f"   ratio {median(found):,.1f} ({min(found):,.1f} to {max(found):,.1f})" if found else ""


def _number(value: float) -> str:
    return f"{value:,}" if float(value).is_integer() and value != 1 else f"{value:.4f}"
