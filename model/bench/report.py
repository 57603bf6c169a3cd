"""What a bench found, as data and as text. Every number's convention stands with it."""

import dataclasses
import resource
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jax
from pydantic import BaseModel, ConfigDict

from model.accounting import account_of, utilization_of
from model.bench.measure import Timings
from model.bench.shapes import Shape, Side
from model.flops import FlopConvention


class Spread(BaseModel):
    """Median and range over rounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median=statistics.median(values), low=min(values), high=max(values))


class SideReport(BaseModel):
    """One side. `share_of_matmul` compares with the fastest matmul of the same round; `mfu` with a nominal peak, where one is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    side: str
    is_default: bool
    is_lossy: bool
    tokens_per_s: Spread | None = None
    step_s: Spread | None = None
    share_of_matmul: Spread | None = None
    mfu: float | None = None
    compile_s: float | None = None
    planned_bytes: int | None = None
    first_loss: float | None = None
    failed: str | None = None


class Report(BaseModel):
    """One shape on one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: str
    tokens_per_step: int
    parameters: int
    active_parameters: int
    train_flops_per_token: float
    flop_convention: FlopConvention
    conventions: dict[str, str]
    measured_at: str
    device: str
    devices: int
    rounds: int
    matmul_flops_per_s: Spread
    peak_flops_per_s: float | None
    process_peak_bytes: int
    sides: list[SideReport]
    fastest: dict[str, str]  # by group, the highest median among those that compute all of it
    rivals: dict[str, list[str]]  # by group, who was faster than that one in a round: it isn't proven to be behind
    published_for_comparison: dict[str, float]


CONVENTIONS = {
    "tokens_per_s": "positions of a batch over the seconds of one update: forward, backward and optimizer; no loading, no logging",
    "compile_s": "tracing left out, lowering and compiling, without a compilation cache",
    "planned_bytes": "arguments, results and temporaries of a step as the compiler lays them out, donated memory once",
    "share_of_matmul": "counted FLOPs a second over those of the fastest square matmul, float32 or bfloat16, of the same round",
    "mfu": "counted FLOPs a second over the device's nominal dense bfloat16 peak; recomputed activations are not counted",
    "published_for_comparison": "other programs in another run, perhaps on another machine: no ratio with this run's numbers holds",
}


def report_of(shape: Shape, sides: tuple[Side, ...], found: Timings, peak_flops_per_s: float | None) -> Report:
    """Numbers of a bench; medians and ranges over rounds."""
    account = account_of(shape.model, shape.sequence_tokens, shape.convention)
    rows = []
    for side in sides:
        row = SideReport(
            group=side.group, side=side.name, is_default=side.is_default, is_lossy=side.is_lossy, failed=found.failed.get(side)
        )
        if side not in found.failed:
            rates = [shape.tokens / seconds for seconds in found.step_s[side]]
            flops = [rate * account.train_flops_per_token for rate in rates]
            spread = Spread.of(rates)
            mfu = utilization_of(account, spread.median, 1, peak_flops_per_s).model_flops_utilization if peak_flops_per_s else None
            row = row.model_copy(
                update={
                    "tokens_per_s": spread,
                    "step_s": Spread.of(found.step_s[side]),
                    "share_of_matmul": Spread.of([f / m for f, m in zip(flops, found.matmul_flops_per_s, strict=True)]),
                    "mfu": mfu,
                    "compile_s": found.compile_s[side],
                    "planned_bytes": found.planned_bytes[side],
                    "first_loss": found.losses[side],
                }
            )
        rows.append(row)
    fastest = _fastest(rows)
    return Report(
        shape=shape.name,
        tokens_per_step=shape.tokens,
        parameters=account.total_parameters,
        active_parameters=account.active_with_vocabulary - account.embedding_parameters,
        train_flops_per_token=account.train_flops_per_token,
        flop_convention=shape.convention,
        conventions=CONVENTIONS,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=jax.devices()[0].device_kind,
        devices=1,
        rounds=len(found.matmul_flops_per_s),
        matmul_flops_per_s=Spread.of(found.matmul_flops_per_s),
        peak_flops_per_s=peak_flops_per_s,
        process_peak_bytes=_process_peak_bytes(),
        sides=rows,
        fastest=fastest,
        rivals={group: _rivals(group, name, sides, found) for group, name in fastest.items()},
        published_for_comparison=dict(shape.published),
    )


def lines_of(report: Report) -> Iterator[str]:
    """A report for a person."""
    peak = report.matmul_flops_per_s
    yield (
        f"{report.shape}: {report.tokens_per_step:,} tokens a step, {report.parameters / 1e6:.2f}M parameters, "
        f"{report.active_parameters / 1e6:.2f}M active in matmuls, {report.train_flops_per_token / 1e6:.1f} MFLOP a token"
    )
    yield f"{report.measured_at}, {report.device}, one device, {report.rounds} rounds in turn"
    yield f"matmul: {peak.median / 1e9:,.0f} GFLOP/s ({peak.low / 1e9:,.0f} to {peak.high / 1e9:,.0f})"
    yield ""
    yield f"{'':34}{'tokens/s':>10}{'range':>19}{'of matmul':>11}{'MFU':>8}{'compile s':>11}{'step MB':>9}{'loss':>9}"
    for group in dict.fromkeys(row.group for row in report.sides):
        yield group
        for row in (row for row in report.sides if row.group == group):
            yield _line(row)
    yield ""
    for group, name in report.fastest.items():
        chosen = [row.side for row in report.sides if row.group == group and row.is_default]
        yield f"fastest {group}: {name}" + (", which is the default" if chosen == [name] else f"; the default is {', '.join(chosen)}")
        if rivals := report.rivals[group]:
            yield f"    not in every round: {', '.join(rivals)} came before it in one at least"
    yield ""
    yield f"FLOPs: {', '.join(f'{name}={value}' for name, value in dataclasses.asdict(report.flop_convention).items())}"
    yield from (f"{name}: {meaning}" for name, meaning in report.conventions.items())
    yield from (f"  {who}: {rate:,.0f} tokens/s" for who, rate in report.published_for_comparison.items())


def _line(row: SideReport) -> str:
    name = f"  {row.side}{' *' if row.is_default else ''}{' (lossy)' if row.is_lossy else ''}"
    if row.failed or row.tokens_per_s is None or row.share_of_matmul is None:
        return f"{name:34}failed: {row.failed}"
    rate, mfu = row.tokens_per_s, "-" if row.mfu is None else f"{row.mfu:.1%}"
    return (
        f"{name:34}{rate.median:10,.0f}{f'{rate.low:,.0f} to {rate.high:,.0f}':>19}{row.share_of_matmul.median:11.1%}{mfu:>8}"
        f"{row.compile_s:11.1f}{(row.planned_bytes or 0) / 1e6:9,.0f}{row.first_loss:9.4f}"
    )


def _fastest(rows: list[SideReport]) -> dict[str, str]:
    """By group, the side with the highest median that computes all of it."""
    found: dict[str, Any] = {}
    for row in rows:
        if row.tokens_per_s is None or row.is_lossy:
            continue
        if row.group not in found or row.tokens_per_s.median > found[row.group].tokens_per_s.median:
            found[row.group] = row
    return {group: row.side for group, row in found.items()}


def _rivals(group: str, name: str, sides: tuple[Side, ...], found: Timings) -> list[str]:
    seconds = {side.name: found.step_s[side] for side in sides if side.group == group and not side.is_lossy and side not in found.failed}
    return [rival for rival, its in seconds.items() if any(mine > theirs for mine, theirs in zip(seconds[name], its, strict=True))]


def _process_peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
