"""One PDF file to text with pypdfium2. Runs in a process of its own: PDFium is native, and its input is anybody's."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal

import pypdfium2 as pdfium
from pypdfium2 import raw as pdfium_c

from ops.extract.config import PdfConfig
from ops.extract.pdf.lines import document_text
from ops.extract.pdf.ocr import Ocr
from ops.extract.pdf.router import PageFeatures, doubt, routed

IMAGE_DEPTH = 3  # of forms in forms; scans lie one deep
MAX_IMAGE_PIXELS = 16 << 20  # an A4 page at 360 dpi; larger pages are drawn smaller
POINTS_PER_INCH = 72

PdfProblem = Literal["encrypted", "broken-file", "too-large", "empty-text"]


class PdfError(ValueError):
    """No text can be had from the file. `reason` is a word of `rejects.Reason`."""

    def __init__(self, reason: PdfProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class PdfText:
    """A file's text. `page_starts`: for every page, blank and broken ones too, the character at which it begins."""

    text: str
    page_starts: tuple[int, ...]
    ocr_pages: int
    broken_pages: int


def read_pdf(data: bytes, config: PdfConfig, ocr: Ocr | None, allow: Callable[[float], None]) -> PdfText:
    """Read every page's text in the order of the page's content stream.

    On 297 real pages that order read as a person would wherever text runs in columns; geometry alone mixed columns and
    captions. `allow` is told how many CPU-seconds the work from now on may take.

    Raises:
        PdfError: a password is needed, the file is broken, has too many pages, or no text.
    """
    try:
        document = pdfium.PdfDocument(data)  # an empty user password opens the file as it does in a viewer
    except pdfium.PdfiumError as error:
        raise _unopened(error) from error
    with closing(document):
        pages = len(document)
        if pages > config.max_pages:
            raise PdfError("too-large", f"{pages} pages; at most {config.max_pages} are read")
        allow(config.open_cpu_s + config.page_cpu_s * pages)
        raw = [_text_of(document, page) for page in range(pages)]
        broken = sum(text is None for text in raw)
        if broken == pages:
            raise PdfError("broken-file", f"none of the {pages} pages can be read")
        texts = [text or "" for text in raw]
        sighted = _read_by_sight(document, texts, config, ocr, allow)
    text, starts = document_text(texts)
    if not text:
        raise PdfError("empty-text", f"none of the {pages} pages has text; {sighted} of them were read by sight")
    return PdfText(text, starts, sighted, broken)


def _unopened(error: pdfium.PdfiumError) -> PdfError:
    if error.err_code in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
        return PdfError("encrypted", "a password is needed" if error.err_code == pdfium_c.FPDF_ERR_PASSWORD else str(error))
    return PdfError("broken-file", str(error))


@contextmanager
def _opened(document: pdfium.PdfDocument, index: int) -> Iterator[pdfium.PdfPage]:
    page = document[index]
    try:
        yield page
    finally:
        page.close()


def _text_of(document: pdfium.PdfDocument, index: int) -> str | None:
    """A page's text; None where the page is broken."""
    try:
        with _opened(document, index) as page, closing(page.get_textpage()) as text:
            return str(text.get_text_range())
    except pdfium.PdfiumError:
        return None


def _read_by_sight(
    document: pdfium.PdfDocument, texts: list[str], config: PdfConfig, ocr: Ocr | None, allow: Callable[[float], None]
) -> int:
    """Replace the text of the most doubtful pages by what their images say. Returns how many were read."""
    if ocr is None or config.ocr_pages == 0:
        return 0
    scores = [doubt(_features(document, index, text)) for index, text in enumerate(texts)]
    pages = routed(scores, config.ocr_pages, config.ocr_min_score)
    if pages:
        allow(config.ocr_page_cpu_s * len(pages))
    for index in pages:
        texts[index] = _seen(document, index, config.ocr_dpi, ocr) or texts[index]
    return len(pages)


def _features(document: pdfium.PdfDocument, index: int, text: str) -> PageFeatures:
    try:
        with _opened(document, index) as page:
            width, height = page.get_size()
            images = page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=IMAGE_DEPTH)
            covered = sum((right - left) * (top - bottom) for left, bottom, right, top in (image.get_bounds() for image in images))
            objects = pdfium_c.FPDFPage_CountObjects(page)
        return PageFeatures(text, max(0.0, min(1.0, covered / max(1.0, width * height))), objects)
    except pdfium.PdfiumError:
        return PageFeatures(text, 0.0, 0)


def _seen(document: pdfium.PdfDocument, index: int, dpi: int, ocr: Ocr) -> str:
    try:
        with _opened(document, index) as page:
            width, height = page.get_size()
            scale = min(dpi / POINTS_PER_INCH, (MAX_IMAGE_PIXELS / max(1.0, width * height)) ** 0.5)
            with closing(page.render(scale=scale)) as bitmap:
                return ocr(bitmap.to_pil())
    except pdfium.PdfiumError:
        return ""
