"""Pages without a text layer are read by sight, within a budget, and only there."""

import importlib.util
import io
import os

import pytest
from PIL import Image, ImageDraw, ImageFont

from ops.extract.config import ExtractConfig, PdfConfig
from ops.extract.interpret import Document, Interpreter
from ops.extract.pdf.process import PdfReader, PdfRejectedError
from ops.extract.pdf.router import PageFeatures, doubt, routed
from tests.ops.extract.pdf_files import pdf

needs_rapidocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None and os.environ.get("CI") != "true",
    reason="rapidocr is not installed; pip install 'seaway[ocr]'",
)
PROSE = "The harbour is full of boats and of people who wait for the tide"


@pytest.mark.parametrize(
    ("page", "score"),
    [
        (PageFeatures("", image_share=0, objects=0), 0),
        (PageFeatures(" \n", image_share=1, objects=1), 1),
        (PageFeatures("", image_share=0, objects=9), 0.9),
        (PageFeatures("page 3", image_share=1, objects=2), 0.8),
        (PageFeatures("page 3", image_share=0.2, objects=2), 0),
        (PageFeatures(PROSE, image_share=1, objects=2), 0),
        (PageFeatures("ab" + "\ue001\ufffd", image_share=0, objects=2), 1),
        (PageFeatures("abcdefg" + "\ue001", image_share=0, objects=2), 0.25),
    ],
)
def test_the_score_says_how_doubtful_a_text_layer_is(page: PageFeatures, score: float) -> None:
    assert doubt(page) == pytest.approx(score)


def test_the_budget_goes_to_the_most_doubtful_pages_earlier_ones_first() -> None:
    scores = [0.9, 0.0, 1.0, 0.4, 0.9]
    assert routed(scores, budget=2, least=0.5) == [0, 2]
    assert routed(scores, budget=9, least=0.5) == [0, 2, 4]
    assert routed(scores, budget=9, least=0.0) == [0, 2, 3, 4]
    assert routed(scores, budget=0, least=0.5) == []


def scan(*pages: str) -> bytes:
    """A PDF whose pages are images."""
    images = []
    for text in pages:
        image = Image.new("L", (1_000, 300), 255)
        ImageDraw.Draw(image).multiline_text((40, 60), text, fill=0, font=ImageFont.load_default(48))
        images.append(image)
    buffer = io.BytesIO()
    images[0].save(buffer, "PDF", resolution=150, save_all=True, append_images=images[1:])
    return buffer.getvalue()


def test_without_a_budget_a_scan_is_a_reject() -> None:
    with PdfReader(PdfConfig()) as reader, pytest.raises(PdfRejectedError, match="none of the 1 pages has text") as caught:
        reader.read(scan("SEAWAY"))
    assert caught.value.reason == "empty-text"


@needs_rapidocr
def test_a_scan_is_read_within_the_budget_and_a_text_layer_is_left_alone() -> None:
    config = ExtractConfig(pdf=PdfConfig(ocr="rapidocr", ocr_pages=2))
    with Interpreter(config) as interpreter:
        found = [
            interpreter.of_payload(name, "application/pdf", data)
            for name, data in {"scan": scan("The tide comes in\ntwice a day", "Second page", "Third page"), "text": pdf([[PROSE]])}.items()
        ]
    scanned, plain = found
    assert isinstance(scanned, Document)
    assert isinstance(plain, Document)
    assert scanned.text == "The tide comes in\ntwice a day\n\nSecond page"
    assert scanned.page_starts == (0, 31, 42)
    assert "+rapidocr/" in scanned.extractor
    assert plain.extractor.startswith("pypdfium2/")
    assert "rapidocr" not in plain.extractor
    assert (interpreter.pages.read, interpreter.pages.by_sight) == (4, 2)
