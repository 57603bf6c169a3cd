"""Damaged DOCX files end as text or as a typed error: nothing else is raised, and time and memory stay small."""

import resource
import sys
import time
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

from ops.extract.config import DocxConfig
from ops.extract.docx.document import docx_text
from ops.extract.docx.errors import DocxError
from tests.ops.extract.docx_files import cell, docx, item, paragraph, run, styled, table, zipped
from tests.ops.extract.fuzzing import mutated

CASES = 1_500
SLOWEST_CPU_S = 5.0
LARGEST_GROWTH = 256 << 20

NOTES = f'<w:footnote w:id="2">{paragraph("a note")}</w:footnote>'
BODY = (
    styled("H2", "Tides")
    + item("one")
    + item("two", 2)
    + table(cell("a", '<w:vMerge w:val="restart"/>') + cell("b"), cell("", "<w:vMerge/>") + cell(table(cell("x") + cell("y")) + "<w:p/>"))
    + f'<w:p>{run("text")}<w:r><w:footnoteReference w:id="2"/></w:r><w:del>{run("gone")}</w:del><w:ins>{run("new")}</w:ins></w:p>'
    + "<w:p><m:oMath><m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>b</m:t></m:r></m:den></m:f></m:oMath></w:p>"
    + '<w:p><w:r><w:fldChar w:fldCharType="begin"/><w:instrText>PAGE</w:instrText><w:fldChar w:fldCharType="separate"/></w:r>'
    + f'{run("1")}<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    + "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent>"
    + paragraph("box")
    + "</w:txbxContent></mc:Choice></mc:AlternateContent></w:r></w:p>"
)
SEED = docx(BODY, footnotes=NOTES)


def outcome(data: bytes) -> str:
    """'document' or the reason; anything else that is raised fails the test."""
    started = time.process_time()
    try:
        found = docx_text(data, DocxConfig(max_part_bytes=4 << 20))
        assert found.strip()
        result = "document"
    except DocxError as error:
        result = error.reason
    assert time.process_time() - started < SLOWEST_CPU_S
    return result


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_damaged_containers_never_crash() -> None:
    before = peak_bytes()
    outcomes = Counter(outcome(mutated([SEED], case)) for case in range(CASES))
    print(f"\n{outcomes}")
    assert outcomes["document"] > 0
    assert outcomes["broken-file"] > CASES / 2
    assert peak_bytes() - before < LARGEST_GROWTH


def test_damaged_parts_never_crash() -> None:
    """The XML is damaged before it is packed, so that no checksum stands in the way."""
    with zipfile.ZipFile(BytesIO(SEED)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    seeds = list(parts.values())
    before = peak_bytes()
    outcomes = Counter[str]()
    for case in range(CASES):
        name = sorted(parts)[case % len(parts)]
        outcomes[outcome(zipped({**parts, name: mutated([parts[name], parts[name], *seeds], case)}))] += 1
    print(f"\n{outcomes}")
    assert outcomes["document"] > CASES / 20
    assert peak_bytes() - before < LARGEST_GROWTH


@pytest.mark.parametrize(
    "filler", ["<w:r><w:tab/></w:r>" * 300_000, run(" " * 3_000_000), run("x" * 3_000_000), run("&#xA0; &#9;" * 300_000)]
)
def test_a_megabyte_of_one_thing_takes_linear_time(filler: str) -> None:
    assert outcome(docx(f"<w:p>{run('a')}{filler}{run('b')}</w:p>" + table(cell(f"<w:p>{filler}</w:p>") + cell("c")))) in (
        "document",
        "bomb",
    )


@pytest.mark.parametrize("depth", [20, 80])
def test_text_that_nests_as_deep_as_allowed_is_read_in_time(depth: int) -> None:
    nested = paragraph("core " * 200)
    for _ in range(depth):
        nested = table(cell("side") + cell(nested + "<w:p/>"))
    assert outcome(docx(nested)) in ("document", "bomb")


def test_a_large_document_is_read_in_time_and_memory(tmp_path: Path) -> None:
    before, started = peak_bytes(), time.process_time()
    found = docx_text(docx("".join(paragraph(f"paragraph {n} of many words") for n in range(20_000))), DocxConfig())
    print(f"\n{len(found)} characters in {time.process_time() - started:.1f} CPU-seconds")
    assert found.count("\n\n") == 19_999
    assert peak_bytes() - before < LARGEST_GROWTH
