"""Why a DOCX file gives no text."""

from typing import Literal

DocxProblem = Literal["broken-file", "encrypted", "bomb", "unsupported-media-type", "empty-text"]


class DocxError(ValueError):
    """No text can be had from the file. `reason` is a word of `rejects.Reason`."""

    def __init__(self, reason: DocxProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail
