"""How payloads become text, and what a file may cost. Imports nothing heavy."""

from typing import Literal, Self

from pydantic import Field, model_validator

from infra.artifacts.config import ProgramConfig, execution_only
from ops.dataflow.config import Execution
from ops.units import MiB


class DocxConfig(ProgramConfig):
    """What a DOCX file may cost. Sizes are bytes after inflating; beyond a cap the file is a reject."""

    max_members: int = Field(10_000, ge=1)
    max_unpacked_bytes: int = Field(512 * MiB, ge=1)  # of all members, as their headers declare
    max_part_bytes: int = Field(64 * MiB, ge=1)  # of one part that is read; 2 to 3 CPU-seconds
    max_ratio: int = Field(200, ge=1)  # inflated to stored; real parts reach 32, deflate 1,032
    max_elements: int = Field(2_000_000, ge=1)  # of one part: 2 to 6 CPU-seconds; a book of 500 pages has 300,000
    max_depth: int = Field(256, ge=8)  # of elements; real ones stay below 40


class PdfConfig(ProgramConfig):
    """What a PDF file may cost, and which of its pages are read by sight.

    Costs are CPU-seconds of the process that parses, so that a busy machine does not change what is rejected.
    """

    parser: Literal["pypdfium2"] = "pypdfium2"
    max_pages: int = Field(2_000, ge=1)
    open_cpu_s: int = Field(10, ge=1)  # to find the pages
    page_cpu_s: float = Field(0.5, gt=0)  # of all pages together, on average; 2 milliseconds are usual
    memory_bytes: int = Field(1024 * MiB, ge=256 * MiB)  # address space; above it the parser ends, and so does the file
    ocr: Literal["none", "rapidocr"] = "none"
    ocr_pages: int = Field(0, ge=0)  # budget of one file, worst pages first; 0 leaves pages without text empty
    ocr_min_score: float = Field(0.5, ge=0, le=0.9)  # pages whose text layer is less doubtful than this are taken as they are
    ocr_page_cpu_s: float = Field(60.0, gt=0)
    ocr_memory_bytes: int = Field(4096 * MiB, ge=1024 * MiB)  # in the place of memory_bytes; models and page images
    ocr_dpi: int = Field(150, ge=72, le=600)

    @model_validator(mode="after")
    def _budget_has_an_engine(self) -> Self:
        if (self.ocr == "none") != (self.ocr_pages == 0):
            raise ValueError(f"pdf: ocr is {self.ocr!r} with ocr_pages {self.ocr_pages}; name an engine and a budget, or neither")
        return self


class ExtractConfig(ProgramConfig):
    """How payloads become text."""

    html: Literal["resiliparse"] = "resiliparse"
    docx: DocxConfig = DocxConfig()
    pdf: PdfConfig = PdfConfig()
    max_payload_bytes: int = Field(default=16 * MiB, ge=1)  # decoded; well above the 1 to 5 MiB at which Common Crawl cuts
    text_media_types: tuple[str, ...] = (  # taken as they are, after decoding
        "text/plain",
        "text/markdown",
        "text/x-rst",
        "text/x-python",
        "text/x-source",
    )
    html_media_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    max_undecodable: float = Field(default=0.01, ge=0, le=1)  # share of characters that no charset could explain
    execution: Execution = execution_only(Execution())
