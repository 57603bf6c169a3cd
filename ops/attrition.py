"""Why each document is in the store or not: one outcome a document, and counters that must balance."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

Flags = npt.NDArray[np.bool_]
Outcomes = npt.NDArray[np.int8]


class Outcome(IntEnum):
    """In the order in which reasons are asked: the first that holds is the one that counts."""

    CONTAMINATED = 0
    FUZZY = 1
    EXACT = 2
    EMPTIED = 3  # all of its paragraphs were cut, since they stand in other documents
    LANGUAGE = 4
    QUALITY = 5
    HELD_OUT_DUPLICATE = 6
    HELD_OUT = 7
    OUT = 8


@dataclass(frozen=True)
class Labels:
    """What the stages said about the documents of one shard; arrays of equal length, one element a document."""

    is_held_out: Flags
    is_contaminated: Flags
    is_fuzzy_duplicate: Flags
    is_exact_duplicate: Flags
    is_emptied: Flags
    language_is_allowed: Flags
    quality_suffices: Flags

    def outcomes(self) -> Outcomes:
        """Decide every document: int8 [documents] of `Outcome`.

        Held-out documents leave only as duplicates of another one: they can't contaminate themselves, and a filter
        on the train side must not change the exam.
        """
        duplicate = self.is_fuzzy_duplicate | self.is_exact_duplicate
        train = ~self.is_held_out
        reasons = (
            (train & self.is_contaminated, Outcome.CONTAMINATED),
            (train & self.is_fuzzy_duplicate, Outcome.FUZZY),
            (train & self.is_exact_duplicate, Outcome.EXACT),
            (train & self.is_emptied, Outcome.EMPTIED),
            (train & ~self.language_is_allowed, Outcome.LANGUAGE),
            (train & ~self.quality_suffices, Outcome.QUALITY),
            (self.is_held_out & duplicate, Outcome.HELD_OUT_DUPLICATE),
            (self.is_held_out, Outcome.HELD_OUT),
        )
        return np.select([held for held, _ in reasons], [np.int8(outcome) for _, outcome in reasons], np.int8(Outcome.OUT)).astype(np.int8)


class Attrition(BaseModel):
    """Documents (or tokens, or bytes) by outcome. `read` = the sum of all others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read: int
    contaminated: int
    fuzzy: int
    exact: int
    emptied: int = 0  # of a store that knew no cutting: none
    language: int
    quality: int
    held_out_duplicate: int
    held_out: int
    out: int


def count_outcomes(outcomes: Outcomes, amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sum `amounts` (documents: ones; or tokens, or bytes) by outcome: int64 [outcomes], exact."""
    sums = np.zeros(len(Outcome), np.int64)
    np.add.at(sums, outcomes, amounts)
    return sums


def attrition(read: int, by_outcome: Sequence[int]) -> Attrition:
    """Name the counters.

    Raises:
        AssertionError: they do not add up to `read`, which is counted apart: something was lost or counted twice.
    """
    counts = [int(count) for count in by_outcome]
    if sum(counts) != read:
        raise AssertionError(f"{read} were read but the outcomes add up to {sum(counts)}: {counts}; the store must not be published")
    return Attrition(read=read, **{outcome.name.lower(): counts[outcome] for outcome in Outcome})
