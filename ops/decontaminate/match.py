"""Which passages stand in which texts, where, and how much of each."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from infra.artifacts.artifact import Artifact
from ops.decontaminate.lookup import PassageIndex
from ops.hashing import passage_hits
from ops.hashing.columns import TextColumn
from ops.hashing.functions import column_functions
from ops.hashing.passage_words import word_codes

TRAIN, HELD_OUT = 0, 1  # kinds of documents: the held-out ones are no leak of themselves


@dataclass(frozen=True)
class Hits:
    """Features of the index in a column of texts, row by row: the row, the index entry, the first word's number, bytes from and to."""

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    words: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """What rows hold of passages: [found] row, passage, share in [0, 1], and the bytes of the longest run."""

    rows: NDArray[np.int64]
    passages: NDArray[np.int64]
    shares: NDArray[np.float64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def take(self, places: NDArray[np.int64]) -> "Coverage":
        """Some of it, in this order."""
        return Coverage(self.rows[places], self.passages[places], self.shares[places], self.starts[places], self.ends[places])


def largest_shares(coverage: Coverage, rows: int) -> NDArray[np.float64]:
    """[rows]: the coverage of the passage that each row has most of; 0 without any."""
    shares = np.zeros(rows)
    np.maximum.at(shares, coverage.rows, coverage.shares)
    return shares


@dataclass(frozen=True)
class Standard:
    """What documents are held against: the entries that count and the passages that are looked for.

    dropped: [entries] boilerplate, which counts for nobody. totals: [passages] the weight that is left of each. judged:
    [kinds, passages]: a passage that loses more than half of its weight is boilerplate itself and not looked for, and
    a held-out document is held against real evaluations alone.
    """

    dropped: NDArray[np.bool_]
    totals: NDArray[np.int64]
    judged: NDArray[np.bool_]

    @classmethod
    def of(cls, index: PassageIndex, dropped: NDArray[np.bool_]) -> "Standard":
        totals, whole = index.weight_of_passages(dropped), index.weight_of_passages(np.zeros_like(dropped))
        distinct = (totals > 0) & (2 * totals >= whole)
        return cls(dropped, totals, np.stack([distinct, distinct & ~index.is_held_out]))

    @classmethod
    def unfiltered(cls, index: PassageIndex) -> "Standard":
        """Every entry counts."""
        return cls.of(index, np.zeros(len(index.features), np.bool_))


class Matcher:
    """Looks an index up. Holds the kernels' scratch, so one thread uses one."""

    def __init__(self, index: PassageIndex) -> None:
        self.index = index
        self._covered = np.zeros(index.passages.num_rows, np.int64)
        self._seen = np.full(len(index.features), -1, np.int64)
        self._serial = 0

    def hits(self, texts: TextColumn) -> Hits:
        """Every feature of the index that stands in the texts."""
        index = self.index
        found = passage_hits.column_hits(texts.data, texts.offsets, word_codes(), index.ngram_words, index.lookup)
        if not index.has_functions:
            return Hits(*found)
        rows, values, starts, ends = column_functions(texts.data, texts.offsets, index.function_tokens)
        places = np.minimum(np.searchsorted(index.features, values), len(index.features) - 1)
        known = index.features[places] == values
        functions = rows[known], places[known], np.zeros(int(known.sum()), np.int64), starts[known], ends[known]
        both = [np.concatenate(pair) for pair in zip(found, functions, strict=True)]
        order = np.argsort(both[0], kind="stable")
        return Hits(*(column[order] for column in both))

    def count_documents(self, texts: TextColumn, counts: NDArray[np.int64]) -> None:
        """Add to `counts` [entries] in how many texts each entry occurs."""
        self.count_rows(self.hits(texts), texts.rows, counts)

    def count_rows(self, hits: Hits, rows: int, counts: NDArray[np.int64]) -> None:
        """Add to `counts` [entries] in how many of the rows each entry occurs."""
        passage_hits.count_rows(hits.rows, hits.places, self._seen, self._rows_from(rows), counts)

    def coverage(self, hits: Hits, kinds: NDArray[np.int64], standard: Standard) -> Coverage:
        """What each row holds of which passage.

        Args:
            kinds: [rows] TRAIN or HELD_OUT.
        """
        index = self.index
        rows, of, weight, starts, ends = passage_hits.column_coverage(
            kinds,
            hits.rows,
            hits.places,
            hits.words,
            hits.starts,
            hits.ends,
            index.owner_offsets,
            index.owners,
            index.weights,
            standard.dropped,
            standard.judged,
            index.ngram_words,
            self._seen,
            self._rows_from(len(kinds)),
            self._covered,
        )
        return Coverage(rows, of, weight / standard.totals[of], starts, ends)

    def _rows_from(self, rows: int) -> int:
        """The first of so many row numbers that no call had before."""
        self._serial += rows
        return self._serial - rows


def matcher_of(evaluation_ngrams: Artifact) -> Matcher:
    """The matcher of an index, read once in a process."""
    return _matcher_at(evaluation_ngrams.url, evaluation_ngrams.digest)


@lru_cache(maxsize=1)
def _matcher_at(url: str, digest: str) -> Matcher:
    return Matcher(PassageIndex.read(Artifact.open_at(url)))
