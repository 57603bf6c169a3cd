"""Gaps between two models, byte by byte. Positive: the first pays more than the second, so it is worse.

Differences are taken byte by byte and summed in one order, so that gap(A, A) is exactly 0 and gap(B, A) exactly -gap(A, B).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from model.eval.perplexity.scored import ScoredDocument, bits_per_byte


class MismatchedDocumentsError(ValueError):
    """Two models were scored on different text."""


@dataclass(frozen=True)
class DocumentGap:
    """One document, and by how many bits the first model pays more for each of its bytes.

    Attributes:
        bits: float64 [bytes of the text]; 0 where a byte doesn't count.
        ours, theirs: bits per scored byte.
    """

    document: ScoredDocument
    bits: NDArray[np.float64]
    ours: float
    theirs: float

    @property
    def total_bits(self) -> float:
        return float(self.bits.sum())

    @property
    def bits_per_byte(self) -> float:
        return self.total_bits / self.document.bytes


@dataclass(frozen=True)
class SliceGap:
    """One slice. `interval` is a percentile interval over resampled documents; None of a single one."""

    key: str
    tags: dict[str, str]
    documents: int
    cut_documents: int
    bytes: int
    ours: float
    theirs: float
    gap: float
    interval: tuple[float, float] | None


def document_gaps(ours: Sequence[ScoredDocument], theirs: Sequence[ScoredDocument]) -> list[DocumentGap]:
    """The gap of each document.

    Raises:
        MismatchedDocumentsError: names the first document that only one side was scored on, or that differs.
    """
    others = {(one.key, one.document): one for one in theirs}
    for one in ours:
        other = others.get((one.key, one.document))
        if other is None or (other.sha256, other.target) != (one.sha256, one.target):
            what = "only one model was scored on it" if other is None else "the models were scored on different text"
            raise MismatchedDocumentsError(f"slice {one.key}, document {one.document}: {what}; score both with one config and store")
    if len(others) > len(ours):
        extra = sorted(others.keys() - {(one.key, one.document) for one in ours})[0]
        raise MismatchedDocumentsError(
            f"slice {extra[0]}, document {extra[1]}: only one model was scored on it; score both with one config"
        )
    return [_gap(one, others[one.key, one.document]) for one in ours]


def _gap(one: ScoredDocument, other: ScoredDocument) -> DocumentGap:
    counts = np.zeros(len(one.byte_nats), bool)
    counts[slice(*one.target)] = True
    bits = np.where(counts, one.byte_nats - other.byte_nats, 0.0) / math.log(2)
    return DocumentGap(one, bits, bits_per_byte(one.nats, one.bytes), bits_per_byte(other.nats, other.bytes))


def slice_gaps(gaps: Sequence[DocumentGap], *, resamples: int, level: float, seed: int) -> list[SliceGap]:
    """The gap of each slice: a ratio of sums over its documents, which are also what is resampled."""
    found = []
    for key, group in groupby(gaps, lambda one: one.document.key):
        members = list(group)
        size = sum(one.document.bytes for one in members)
        bits = np.array([one.total_bits for one in members])
        sizes = np.array([one.document.bytes for one in members])
        found.append(
            SliceGap(
                key=key,
                tags=members[0].document.tags,
                documents=len(members),
                cut_documents=sum(one.document.is_cut for one in members),
                bytes=size,
                ours=sum(one.ours * one.document.bytes for one in members) / size,
                theirs=sum(one.theirs * one.document.bytes for one in members) / size,
                gap=float(bits.sum() / size),
                interval=_interval(bits, sizes, resamples, level, seed) if len(members) > 1 else None,
            )
        )
    return found


def _interval(bits: NDArray[np.float64], sizes: NDArray[np.int64], resamples: int, level: float, seed: int) -> tuple[float, float]:
    drawn = np.random.default_rng(seed).integers(0, len(bits), (resamples, len(bits)))
    ratios = bits[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def worst(gaps: Sequence[DocumentGap], count: int) -> list[DocumentGap]:
    """The documents where the first model is most behind and most ahead, bit for bit, by how far: half of `count` each, if there are
    as many."""
    behind = sorted(
        (one for one in gaps if one.total_bits > 0), key=lambda one: (-one.bits_per_byte, one.document.key, one.document.document)
    )
    ahead = sorted(
        (one for one in gaps if one.total_bits < 0), key=lambda one: (one.bits_per_byte, one.document.key, one.document.document)
    )
    return [*behind[: -(-count // 2)], *ahead[: count // 2]]


def roll_up(slices: Sequence[SliceGap], tag: str) -> Iterator[tuple[str, int, float]]:
    """(tag's value, slices, unweighted mean gap of them) of each value of a tag."""
    for value in sorted({one.tags[tag] for one in slices}):
        members = [one.gap for one in slices if one.tags[tag] == value]
        yield value, len(members), sum(members) / len(members)
