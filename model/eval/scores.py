"""Held-out scores: sums per document, divided once. Averages of averages are how evaluations go wrong."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class DocumentScores:
    """What a model paid for each document of one domain, in document order.

    Attributes:
        nats: float64 [documents], negative log-likelihood of the scored tokens.
        tokens: int64 [documents], scored tokens.
        bytes: int64 [documents], bytes of text these tokens stand for.
    """

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def measures(self) -> dict[str, float]:
        """Ratios of sums: `nats_per_token`, and `bits_per_byte` where there are bytes."""
        return measures_of(float(self.nats.sum()), int(self.tokens.sum()), int(self.bytes.sum()))


Scores = Mapping[str, DocumentScores]
"""Scores by held-out domain."""


def measures_of(nats: float, tokens: int, size_bytes: int) -> dict[str, float]:
    """Nats per token and bits per byte from sums; a measure without a denominator is left out, never zero."""
    measures = {}
    if tokens:
        measures["nats_per_token"] = nats / tokens
    if size_bytes:
        measures["bits_per_byte"] = nats / math.log(2) / size_bytes
    return measures


def summarize(scores: Scores) -> dict[str, Any]:
    """Per domain: sums and measures; over all: `micro` (ratio of all sums) and `macro` (unweighted mean over domains).

    A domain without scored tokens has no measure, so it enters no macro average.
    """
    domains = {
        domain: {
            "documents": len(found.nats),
            "nats": float(found.nats.sum()),
            "tokens": int(found.tokens.sum()),
            "bytes": int(found.bytes.sum()),
            **found.measures(),
        }
        for domain, found in sorted(scores.items())
    }
    return {"domains": domains, **averages(domains)}


def averages(domains: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """`micro_*` and `macro_*` of rows that hold nats, tokens, bytes and measures."""
    totals = (sum(row["nats"] for row in domains.values()), *(sum(row[name] for row in domains.values()) for name in ("tokens", "bytes")))
    micro = {f"micro_{name}": value for name, value in measures_of(*totals).items()}
    macro = {}
    for name in ("nats_per_token", "bits_per_byte"):
        values = [row[name] for row in domains.values() if name in row]
        if values:
            macro[f"macro_{name}"] = sum(values) / len(values)
    return {**micro, **macro}
