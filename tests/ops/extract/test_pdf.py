"""PDF files with known text, through the process that parses them."""

from collections.abc import Iterator

import pytest

from ops.extract.config import PdfConfig
from ops.extract.pdf.process import PdfReader, PdfRejectedError
from tests.ops.extract.pdf_files import pdf


@pytest.fixture(scope="module")
def reader() -> Iterator[PdfReader]:
    with PdfReader(PdfConfig(max_pages=50)) as reader:
        yield reader


def reason_of(reader: PdfReader, data: bytes) -> str:
    with pytest.raises(PdfRejectedError) as caught:
        reader.read(data)
    assert caught.value.detail
    return caught.value.reason


def test_a_page_begins_where_page_starts_says(reader: PdfReader) -> None:
    found = reader.read(pdf([["First page.", "Its end."], [], ["Third (page) \\ here."]]))
    assert found.text == "First page.\nIts end.\n\nThird (page) \\ here."
    first, second, third = found.page_starts
    assert (first, second) == (0, len("First page.\nIts end."))
    assert found.text[third:] == "Third (page) \\ here."
    assert (found.ocr_pages, found.broken_pages) == (0, 0)
    assert found.extractor.startswith("pypdfium2/")


def test_blank_pages_take_no_room_wherever_they_are(reader: PdfReader) -> None:
    found = reader.read(pdf([[], [], ["One."], [], ["Two."], []]))
    assert (found.text, found.page_starts) == ("One.\n\nTwo.", (0, 0, 0, 4, 6, 10))


def test_lines_that_go_on_are_joined_and_their_hyphens_taken_out(reader: PdfReader) -> None:
    lines = [
        "The tide comes in twice a day and the har-",
        "bour fills until the boats that lay on the",
        "mud float again. A short",
        "end.",
        "Next.",
    ]
    assert reader.read(pdf([lines])).text == (
        "The tide comes in twice a day and the harbour fills until the boats that lay on the mud float again. A short end.\nNext."
    )


def test_a_compound_keeps_its_hyphen_where_the_document_writes_it_so(reader: PdfReader) -> None:
    lines = ["It is a well-known fact of all that is well-", "known, and the household is a house-", "hold; Anglo-", "Saxon is one."]
    assert (
        reader.read(pdf([lines])).text
        == "It is a well-known fact of all that is well-known, and the household is a household; Anglo-Saxon is one."
    )


def test_repeated_headers_and_page_numbers_are_taken_away(reader: PdfReader) -> None:
    pages = [["Annual Report 2026", f"Chapter text number {word}.", f"Page {n} of 4"] for n, word in enumerate("abcd", 1)]
    found = reader.read(pdf(pages))
    assert found.text == "\n\n".join(f"Chapter text number {word}." for word in "abcd")


def test_what_is_the_whole_page_is_kept_though_it_repeats(reader: PdfReader) -> None:
    assert reader.read(pdf([["Slide"]] * 4)).text == "Slide\n\nSlide\n\nSlide\n\nSlide"


def test_two_pages_prove_no_header(reader: PdfReader) -> None:
    assert reader.read(pdf([["Title", "one"], ["Title", "two"]])).text == "Title\none\n\nTitle\ntwo"


def test_an_empty_password_opens_and_another_is_needed_for_the_rest(reader: PdfReader) -> None:
    assert reader.read(pdf([["Not so secret."]], password="")).text == "Not so secret."
    assert reason_of(reader, pdf([["Secret."]], password="tide")) == "encrypted"


def test_broken_and_empty_files_say_so(reader: PdfReader) -> None:
    whole = pdf([["Some text."]])
    assert reason_of(reader, b"%PDF-1.4\nnothing") == "broken-file"
    assert reason_of(reader, whole[:60]) == "broken-file"
    assert reason_of(reader, pdf([[], []])) == "empty-text"
    assert reason_of(reader, pdf([["x"]] * 51)) == "too-large"
    assert reader.read(whole.replace(b"startxref", b"startxxxx")).text == "Some text."  # the parser repairs what can be


def test_control_characters_and_unpaired_surrogates_do_not_come_out(reader: PdfReader) -> None:
    assert reader.read(pdf([], contents=[b"BT /F1 12 Tf 72 720 Td (a\\001b\\033c) Tj ET"])).text == "abc"


@pytest.mark.parametrize("unit", [b"x", b"-", b"x-", b"a ", b"1", b"iv"])
def test_a_megabyte_of_one_thing_is_read_within_the_budget(reader: PdfReader, unit: bytes) -> None:
    """A worker that took quadratic time would be ended by the kernel."""
    line = b"BT /F1 12 Tf 72 720 Td %s ET" % (b"(%s) Tj " % (unit * 5_000) * 100)  # the parser cuts one string at 32,767
    found = reader.read(pdf([], contents=[line, b"BT /F1 12 Tf 72 720 Td (end) Tj ET"]))
    assert found.text.endswith("end")
    assert len(found.text) > 400_000


def test_a_budget_needs_an_engine() -> None:
    with pytest.raises(ValueError, match="name an engine and a budget"):
        PdfConfig(ocr_pages=3)
