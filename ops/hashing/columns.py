"""Text columns as kernels see them: one run of UTF-8 bytes and the offsets of its rows. Nothing is copied."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class TextColumn:
    """Row i is `data[offsets[i]:offsets[i + 1]]`.

    data: [bytes] uint8. offsets: [rows + 1] int64.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.Array) -> "TextColumn":
        """View an Arrow string or binary array (32 or 64 bit offsets).

        Raises:
            ValueError: the column has nulls or is no text.
        """
        if column.null_count:
            raise ValueError(f"{column.null_count} of {len(column)} texts are null; normalized text is never null")
        if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
            width: np.dtype[Any] = np.dtype(np.int64)
        elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            width = np.dtype(np.int32)
        else:
            raise ValueError(f"a column of {column.type} holds no text; cast it to string")
        _, offsets, data = column.buffers()
        if offsets is None or len(column) == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        rows = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize)
        bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
        return cls(bytes_, rows.astype(np.int64))

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def longest(self) -> int:
        """Bytes of the longest row; 0 without rows."""
        return int(np.diff(self.offsets).max(initial=0))
