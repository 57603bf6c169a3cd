"""Who is in which LSH bucket, on its way through local disk to those who share one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class EntrySpill:
    """Keeps pairs of bucket and document in `parts` files, the pairs of a bucket together in one and in the order they came.

    Memory: what is being added. A file is opened for each addition, so there may be more of them than a process may hold open.
    """

    def __init__(self, folder: Path, parts: int) -> None:
        self._files = [folder / f"{part:05d}.entries" for part in range(parts)]

    def add(self, buckets: NDArray[np.uint64], numbers: NDArray[np.int64]) -> None:
        """Take pairs.

        Args:
            buckets, numbers: [pairs].
        """
        parts = buckets % np.uint64(len(self._files))
        order = np.argsort(parts, kind="stable")
        pairs = np.stack([buckets, numbers.astype(np.uint64)], axis=1)[order]
        ends = np.cumsum(np.bincount(parts.astype(np.int64), minlength=len(self._files)))
        for file, some in zip(self._files, np.split(pairs, ends[:-1]), strict=True):
            if len(some):
                with file.open("ab") as stream:
                    stream.write(some.data)

    def part(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """[pairs] buckets and documents of one part."""
        file = self._files[index]
        pairs = np.fromfile(file, np.uint64) if file.exists() else np.zeros(0, np.uint64)
        return pairs[0::2].copy(), pairs[1::2].astype(np.int64)
