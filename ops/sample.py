"""Which documents to learn from: the ones with the smallest keyed hash, up to a budget of bytes.

The choice depends on the set of documents alone - not on their order, their sharding or who else reads them.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import xxhash

Hashes = npt.NDArray[np.uint64]
Sizes = npt.NDArray[np.int64]

PRUNE_ROWS = 65_536  # 1 MiB of hashes and sizes


def hash_ids(ids: list[str], key: int) -> Hashes:
    """A keyed hash per document id: independent of the held-out split, which hashes the same ids with a salt."""
    return np.fromiter((xxhash.xxh3_64_intdigest(one.encode(), seed=key) for one in ids), np.uint64, len(ids))


class HashOrderSample:
    """Streams (hash, size) pairs and keeps those that can still be within the budget: memory follows the sample, not the corpus."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.total_bytes = 0
        self._bound = 1 << 64  # every document from this hash on is over the budget, whatever else comes
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._sizes: Sizes = np.empty(0, np.int64)
        self._prune_at = PRUNE_ROWS

    def add(self, hashes: Hashes, sizes: Sizes) -> None:
        self.total_bytes += int(sizes.sum())
        possible = hashes < self._bound
        self._hashes = np.concatenate([self._hashes, hashes[possible]])
        self._sizes = np.concatenate([self._sizes, sizes[possible]])
        if len(self._hashes) >= self._prune_at:
            self._prune(self.budget_bytes)
            self._prune_at = 2 * len(self._hashes) + PRUNE_ROWS  # sorting stays a constant number of times per document

    def limit(self, budget_bytes: int) -> int:
        """The exclusive upper bound on hashes: documents below it have at most `budget_bytes` together, and one more has not.

        Raises:
            ValueError: the budget is larger than what was collected for.
        """
        if budget_bytes > self.budget_bytes:
            raise ValueError(f"a sample collected for {self.budget_bytes} bytes can't serve {budget_bytes}")
        self._prune(budget_bytes)
        return self._bound

    def _prune(self, budget_bytes: int) -> None:
        order = np.argsort(self._hashes, kind="stable")
        hashes, sizes = self._hashes[order], self._sizes[order]
        kept = int(np.searchsorted(np.cumsum(sizes), budget_bytes, side="right"))
        if kept < len(hashes):
            self._bound = int(hashes[kept])
        self._hashes, self._sizes = hashes[:kept], sizes[:kept]


def share_out(budget_bytes: int, available: Mapping[str, int], cap_bytes: int) -> dict[str, int]:
    """Split a budget over sources in proportion to their bytes, none above its bytes or `cap_bytes`.

    What a capped source can't take goes to the others, again in proportion.
    """
    ceilings = {source: min(size, cap_bytes) for source, size in available.items()}
    shares: dict[str, int] = {}
    open_sources = {source for source, size in available.items() if size > 0}
    while open_sources:
        left = budget_bytes - sum(shares.values())
        weight = sum(available[source] for source in open_sources)
        filled = {source for source in open_sources if available[source] * left >= ceilings[source] * weight}
        if not filled:
            return shares | {source: available[source] * left // weight for source in open_sources}
        shares |= {source: ceilings[source] for source in filled}
        open_sources -= filled
    return shares
