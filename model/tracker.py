"""The run's own record: rows of host values, one per logged step, that survive a resume without a gap or a double.

Rows are results and lie in the artifact, so they hold nothing of the execution: no seconds, no rates, no hosts.
Speed goes to the heartbeat. Device arrays are refused: a row must never make another thread, or a later moment,
wait for a device.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from infra.artifacts.writer import Writer

Row = dict[str, Any]


class Tracker:
    """Keeps a run's metric rows (`metrics.jsonl`) and in-loop held-out rows (`evals.jsonl`) in memory.

    A million logged steps are ~300 MB; raise `log_every_steps` before a run gets there.
    """

    def __init__(self, metrics: list[Row] | None = None, evals: list[Row] | None = None) -> None:
        self.metrics = list(metrics or [])
        self.evals = list(evals or [])

    @classmethod
    def restore(cls, journal: bytes) -> "Tracker":
        """The tracker as it was when `journal` was taken: what was logged later is forgotten, and will be logged again."""
        rows = json.loads(journal)
        return cls(rows["metrics"], rows["evals"])

    def journal(self) -> bytes:
        """Everything logged so far, for a checkpoint. Floats survive the round trip bit for bit."""
        return json.dumps({"metrics": self.metrics, "evals": self.evals}, allow_nan=False).encode()

    def log_step(self, row: Mapping[str, Any]) -> None:
        """Add a training row.

        Raises:
            TypeError: a value is no plain host value.
            ValueError: a value is not finite, or the row's step was logged before.
        """
        self.metrics.append(_checked(row, self.metrics))

    def log_eval(self, row: Mapping[str, Any]) -> None:
        """Add a held-out row; raises like `log_step`."""
        self.evals.append(_checked(row, self.evals))

    def write(self, out: Writer) -> None:
        """Write both files, one JSON object a line, in step order."""
        for name, rows in (("metrics.jsonl", self.metrics), ("evals.jsonl", self.evals)):
            with out.open(name) as stream:
                for row in rows:
                    stream.write(json.dumps(row, sort_keys=True, allow_nan=False).encode() + b"\n")


def read_rows(stream: Any) -> list[Row]:
    """The rows of a `.jsonl` file."""
    return [json.loads(line) for line in stream if line.strip()]


def _checked(row: Mapping[str, Any], earlier: list[Row]) -> Row:
    checked = {name: _host_value(name, value) for name, value in row.items()}
    if earlier and earlier[-1]["step"] >= checked["step"]:
        raise ValueError(f"step {checked['step']} was logged after step {earlier[-1]['step']}; rows come once and in order")
    return checked


def _host_value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _host_value(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_host_value(name, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"metric {name!r} is {value}; a run with such a value is broken and must not be logged as a result")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; call jax.device_get and float() on the training thread first")
