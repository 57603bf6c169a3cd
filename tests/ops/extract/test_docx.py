"""What a DOCX file's reader sees is the text; the rest is left out."""

import pytest

from ops.extract.config import DocxConfig
from ops.extract.docx.document import docx_text
from ops.extract.docx.errors import DocxError
from tests.ops.extract.docx_files import NAMESPACES, cell, docx, item, paragraph, parts_of, run, styled, table, zipped


def text_of(body: str, **changes: str) -> str:
    return docx_text(docx(body, **changes), DocxConfig())


def in_run(content: str) -> str:
    return f"<w:r>{content}</w:r>"


def test_paragraphs_come_in_order_with_tabs_and_breaks() -> None:
    body = paragraph("one") + "<w:p/>" + f"<w:p>{run('two')}{in_run('<w:tab/>')}{run('three')}{in_run('<w:br/>')}{run('four')}</w:p>"
    assert text_of(body) == "one\n\ntwo\tthree\nfour"


def test_a_tab_stop_is_no_tab() -> None:
    assert text_of(paragraph("one", '<w:tabs><w:tab w:val="left" w:pos="720"/></w:tabs>')) == "one"


def test_white_space_of_lay_out_is_one_space() -> None:
    assert text_of(paragraph("  Name:        Smith  ")) == "Name: Smith"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (styled("H2", "Tides"), "## Tides"),
        (styled("Chapter", "Tides"), "# Tides"),
        (styled("Child", "Tides"), "# Tides"),
        (styled("Normal", "Tides"), "Tides"),
        (styled("Unknown", "Tides"), "Tides"),
        (paragraph("Tides", '<w:outlineLvl w:val="2"/>'), "### Tides"),
        (paragraph("Tides", '<w:pStyle w:val="H2"/><w:outlineLvl w:val="9"/>'), "Tides"),
        (paragraph("Tides", '<w:pStyle w:val="H2"/><w:numPr><w:numId w:val="2"/></w:numPr>'), "## 1. Tides"),
    ],
)
def test_headings_are_known_by_their_outline(body: str, text: str) -> None:
    assert text_of(body) == text


def test_list_items_carry_the_label_that_a_reader_sees() -> None:
    body = item("a") + item("b", 1) + item("c", 1) + item("d", 2) + item("e") + paragraph("between") + item("f") + item("g", number=3)
    assert text_of(body) == "1. a\n  (a) b\n  (b) c\n    1.III d\n2. e\n\nbetween\n\n3. f\n7. g"


def test_bullets_are_dashes_also_by_style_and_an_empty_item_is_left_out() -> None:
    assert text_of(item("a", number=1) + item("", number=1) + styled("Bullets", "b")) == "- a\n- b"


def test_a_paragraph_can_leave_its_styles_list() -> None:
    assert text_of(paragraph("a", '<w:pStyle w:val="Bullets"/><w:numPr><w:numId w:val="0"/></w:numPr>')) == "a"


def test_tables_are_rows_of_cells_without_padding() -> None:
    body = paragraph("before") + table(
        cell("Name") + cell("Age"), cell("Ann") + cell(paragraph("4") + paragraph("years")), cell("") + cell("")
    )
    assert text_of(body + paragraph("after")) == "before\n\nName | Age\nAnn | 4 years\n\nafter"


def test_merged_cells_stand_once() -> None:
    first = cell("wide", '<w:gridSpan w:val="2"/>') + cell("tall", '<w:vMerge w:val="restart"/>')
    second = cell("a") + cell("b") + cell("hidden below", "<w:vMerge/>")
    assert text_of(table(first, second)) == "wide | tall\na | b"


def test_a_table_of_one_column_is_lay_out() -> None:
    assert text_of(table(cell(paragraph("one") + paragraph("two")), cell(item("three")))) == "one\n\ntwo\n\n1. three"


def test_a_nested_table_stays_in_its_cell() -> None:
    inner = table(cell("a") + cell("b"), cell("c") + cell("d"))
    assert text_of(table(cell("x") + cell(inner + "<w:p/>"))) == "x | a | b c | d"


def test_deleted_and_moved_text_is_left_out_and_insertions_are_kept() -> None:
    deleted = f"<w:del>{in_run('<w:delText>gone</w:delText>')}{run('gone too')}</w:del>"
    moved = f"<w:moveFrom>{run('from')}</w:moveFrom><w:moveTo>{run(' to')}</w:moveTo>"
    assert text_of(f"<w:p>{run('kept')}{deleted}<w:ins>{run(' new')}</w:ins>{moved}</w:p>") == "kept new to"


def test_a_deleted_paragraph_mark_joins_two_paragraphs() -> None:
    assert text_of(paragraph("one ", "<w:rPr><w:del/></w:rPr>") + paragraph("two")) == "one two"
    assert text_of(paragraph("last", "<w:rPr><w:del/></w:rPr>")) == "last"


def test_deleted_rows_and_cells_are_left_out() -> None:
    gone = "<w:trPr><w:del/></w:trPr>" + cell("x") + cell("y")
    assert text_of(table(cell("a") + cell("b"), gone, cell("c") + cell("z", "<w:cellDel/>"))) == "a | b\nc"


def test_field_codes_are_left_out_and_their_results_kept() -> None:
    def step(kind: str) -> str:
        return in_run(f'<w:fldChar w:fldCharType="{kind}"/>')

    code = step("begin") + in_run("<w:instrText>HYPERLINK</w:instrText>") + run("seen by nobody") + step("separate")
    simple = f'<w:fldSimple w:instr="AUTHOR">{run(" Ann")}</w:fldSimple>'
    assert text_of(f"<w:p>{code}{run('result')}{step('end')}{run(' after')}{simple}</w:p>") == "result after Ann"


def test_a_field_without_an_end_does_not_swallow_the_document() -> None:
    assert text_of(f"<w:p>{in_run('<w:fldChar w:fldCharType="begin"/>')}{run('code')}</w:p>" + paragraph("next")) == "next"


def test_the_text_of_links_controls_and_smart_tags_is_kept() -> None:
    link, control = (
        f"<w:hyperlink>{run('link')}</w:hyperlink>",
        f"<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>{run(' form')}</w:sdtContent></w:sdt>",
    )
    assert text_of(f"<w:p>{link}{control}<w:smartTag>{run(' tag')}</w:smartTag></w:p>") == "link form tag"


def test_a_text_box_stands_once_behind_its_paragraph() -> None:
    box = f"<w:txbxContent>{paragraph('in the box')}</w:txbxContent>"
    drawing = f'<mc:AlternateContent><mc:Choice Requires="wps">{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>'
    assert text_of(f"<w:p>{run('before ')}{in_run(drawing)}{run('after')}</w:p>") == "before after\n\nin the box"


def test_the_fallback_counts_where_no_choice_has_text() -> None:
    fallback = f"<mc:Fallback><w:txbxContent>{paragraph('old form')}</w:txbxContent></mc:Fallback>"
    drawing = f'<mc:AlternateContent><mc:Choice Requires="x"><w:drawing/></mc:Choice>{fallback}</mc:AlternateContent>'
    assert text_of(f"<w:p>{in_run(drawing)}</w:p>") == "old form"


def test_footnotes_stand_at_the_end_in_the_order_of_their_marks() -> None:
    notes = "".join(f'<w:footnote w:id="{n}">{paragraph(text)}</w:footnote>' for n, text in [(0, "separator"), (4, "four"), (5, "five")])
    body = f"<w:p>{run('a')}{in_run('<w:footnoteReference w:id="5"/>')}{run(' b')}{in_run('<w:footnoteReference w:id="4"/>')}</w:p>"
    assert text_of(body, footnotes=notes) == "a[^1] b[^2]\n\n[^1]: five\n[^2]: four"


def test_hidden_runs_and_section_properties_are_left_out() -> None:
    body = f"<w:p>{run('seen')}{run('unseen', '<w:vanish/>')}{run(' too', '<w:vanish w:val="0"/>')}</w:p>"
    assert text_of(body + '<w:sectPr><w:headerReference w:type="default"/></w:sectPr>') == "seen too"


def test_equations_are_linear_text() -> None:
    fraction = "<m:f><m:num><m:r><m:t>a</m:t></m:r></m:num><m:den><m:r><m:t>b</m:t></m:r></m:den></m:f>"
    power = "<m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    root = f"<m:rad><m:radPr><m:degHide/></m:radPr><m:deg/><m:e>{power}</m:e></m:rad>"
    total = '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i</m:t></m:r></m:sub><m:sup/><m:e>' + power + "</m:e></m:nary>"
    assert text_of(f"<w:p><m:oMath>{fraction}{root}{total}</m:oMath></w:p>") == "$\\frac{a}{b}\\sqrt{x^{2}}∑_{i}^{}x^{2}$"


def test_symbols_of_symbol_fonts_are_letters_where_they_are() -> None:
    symbols = '<w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Wingdings" w:char="F0E0"/><w:sym w:font="Arial" w:char="2192"/>'
    assert text_of(f"<w:p>{run('x')}{in_run(symbols)}</w:p>") == "xα→"


def test_files_saved_as_strict_and_with_other_part_names_are_read() -> None:
    strict = NAMESPACES.replace(
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main", "http://purl.oclc.org/ooxml/wordprocessingml/main"
    )
    assert text_of(paragraph("strict"), namespaces=strict) == "strict"
    assert text_of(styled("H2", "odd"), main="word/document22.xml") == "## odd"


def test_files_without_styles_and_numbering_are_read() -> None:
    parts = {
        name: part
        for name, part in parts_of(styled("H2", "plain") + item("item")).items()
        if "styles" not in name and "numbering" not in name
    }
    assert docx_text(zipped(parts), DocxConfig()) == "plain\n\n- item"


def reason_of(data: bytes, **limits: int) -> str:
    with pytest.raises(DocxError) as caught:
        docx_text(data, DocxConfig(**limits))
    assert caught.value.detail
    return caught.value.reason


BOMB = {"word/document.xml": f"<w:document {NAMESPACES}>" + " " * (40 << 20) + "</w:document>"}
ENTITIES = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "broken-file"),
        (b"PK\x03\x04 and no more", "broken-file"),
        (b"<html>not found</html>", "broken-file"),
        (docx(paragraph("x"))[:-400], "broken-file"),
        (docx("<w:p><w:r>"), "broken-file"),
        (docx(""), "empty-text"),
        (zipped({"readme.txt": "no document"}), "unsupported-media-type"),
        (zipped({**parts_of("", main="xl/workbook.xml")}), "unsupported-media-type"),
        (zipped({**parts_of(""), "word/document.xml": "<w:styles xmlns:w='other'/>"}), "unsupported-media-type"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "WordDocument".encode("utf-16-le"), "unsupported-media-type"),
        (zipped({**parts_of(""), **BOMB}), "bomb"),
        (zipped({**parts_of(paragraph("x")), "word/styles.xml": " " * (40 << 20)}), "bomb"),
        (zipped({**parts_of(""), "word/document.xml": ENTITIES + "<d>&b;</d>"}), "broken-file"),
        (docx("<w:sdt>" * 300 + "</w:sdt>" * 300), "bomb"),
    ],
)
def test_what_cant_be_read_says_why(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


def test_caps_hold_for_members_sizes_and_the_sum() -> None:
    data = docx(paragraph("x" * 10_000))
    assert reason_of(data, max_members=3) == "bomb"
    assert reason_of(data, max_part_bytes=5_000) == "bomb"
    assert reason_of(data, max_unpacked_bytes=5_000) == "bomb"
    assert reason_of(docx(paragraph("x") * 1_000), max_elements=1_000) == "bomb"
    assert docx_text(data, DocxConfig()) == "x" * 10_000


def test_an_encrypted_member_and_a_foreign_packing_are_told_apart() -> None:
    data = docx(paragraph("x"))
    assert reason_of(_patched(data, at=8, value=1)) == "encrypted"
    assert reason_of(_patched(data, at=10, value=12)) == "broken-file"


def _patched(data: bytes, at: int, value: int) -> bytes:
    """Set a byte of every central directory entry (flags lie 8 behind its magic, the method 10)."""
    patched = bytearray(data)
    start = -1
    while (start := data.find(b"PK\x01\x02", start + 1)) >= 0:
        patched[start + at] = value
    return bytes(patched)
