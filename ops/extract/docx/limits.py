"""What a DOCX file may cost, and the error that says it can't be read."""

from dataclasses import dataclass
from typing import Literal

KiB, MiB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class DocxLimits:
    """Caps on one file. Sizes are bytes after inflating."""

    members: int = 10_000
    unpacked_bytes: int = 512 * MiB  # of all members, as their headers declare
    part_bytes: int = 64 * MiB  # of one part that is read
    ratio: int = 200  # inflated to stored; real parts reach 32, deflate 1,032
    depth: int = 256  # of elements; Word itself stops at tables nested 20 deep, about 100


FREE_RATIO_BYTES = MiB  # a part smaller than this may have any ratio: it can't hurt
DocxProblem = Literal["broken-file", "encrypted", "bomb", "unsupported-media-type", "empty-text"]


class DocxError(ValueError):
    """No text can be had from the file. `reason` is a word of `rejects.Reason`."""

    def __init__(self, reason: DocxProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail
