"""Builders of DOCX files, part by part."""

import io
import zipfile
from collections.abc import Mapping

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
NAMESPACES = (
    f'xmlns:w="{W}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
)
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
STYLES = (
    '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="H2"><w:name w:val="heading 2"/><w:basedOn w:val="Normal"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Chapter"><w:name w:val="Kapitel"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="Child"><w:name w:val="Unterkapitel"/><w:basedOn w:val="Chapter"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Bullets"><w:name w:val="List"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
)
NUMBERING = (
    '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="&#xF0B7;"/></w:lvl></w:abstractNum>'
    '<w:abstractNum w:abstractNumId="1">'
    '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
    '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%2)"/></w:lvl>'
    '<w:lvl w:ilvl="2"><w:start w:val="3"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1.%3"/></w:lvl></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
    '<w:num w:numId="3"><w:abstractNumId w:val="1"/>'
    '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride></w:num>'
)


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{run(text)}</w:p>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def styled(style: str, text: str) -> str:
    return paragraph(text, f'<w:pStyle w:val="{style}"/>')


def item(text: str, level: int = 0, number: int = 2) -> str:
    return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>')


def table(*rows: str) -> str:
    return f"<w:tbl><w:tblPr/>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(content: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content if content.startswith('<') else paragraph(content)}</w:tc>"


def parts_of(body: str, *, footnotes: str = "", namespaces: str = NAMESPACES, main: str = "word/document.xml") -> dict[str, str]:
    """The parts of a document with the given body, by name."""
    kinds = {"styles": "styles.xml", "numbering": "numbering.xml", "footnotes": "footnotes.xml"}
    relations = "".join(f'<Relationship Id="r{kind}" Type="{OFFICE}/{kind}" Target="{target}"/>' for kind, target in kinds.items())
    root = f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="{main}"/>'
    folder, _, name = main.rpartition("/")
    return {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{root}</Relationships>',
        main: f"<w:document {namespaces}><w:body>{body}</w:body></w:document>",
        f"{folder}/_rels/{name}.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{relations}</Relationships>',
        f"{folder}/styles.xml": f"<w:styles {namespaces}>{STYLES}</w:styles>",
        f"{folder}/numbering.xml": f"<w:numbering {namespaces}>{NUMBERING}</w:numbering>",
        f"{folder}/footnotes.xml": f"<w:footnotes {namespaces}>{footnotes}</w:footnotes>",
    }


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def docx(body: str, **changes: str) -> bytes:
    return zipped(parts_of(body, **changes))
