"""What a payload is by its first bytes, for the formats that have some: labels are wrong too often."""

from enum import Enum

from ops.extract.docx.package import OLE_MAGIC, ZIP_MAGIC

PDF_MAGIC = b"%PDF-"
PDF_MEDIA_TYPE = "application/pdf"
PDF_MEDIA_TYPES = frozenset({PDF_MEDIA_TYPE, "application/x-pdf", "application/acrobat", "application/vnd.pdf", "text/pdf", "text/x-pdf"})
DOCX_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
DOCX_MEDIA_TYPES = frozenset(
    {
        DOCX_MEDIA_TYPE,
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
        "application/vnd.ms-word.document.macroenabled.12",
        "application/vnd.ms-word.template.macroenabled.12",
        "application/msword",  # so do servers label DOCX, too
    }
)
MAGIC_BYTES = 1_024  # in which PDF readers look for the magic
CONTENT_TYPES = b"[Content_Types].xml"  # a zip's names are stored as they are
WORD_FOLDER = b"word/"


class Container(Enum):
    """A binary format whose text can be had."""

    PDF = PDF_MEDIA_TYPE
    DOCX = DOCX_MEDIA_TYPE


def container_of(media_type: str, data: bytes) -> Container | None:
    """The container that the bytes are or, if they don't say, that the label says."""
    if data[:MAGIC_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(PDF_MAGIC):
        return Container.PDF
    if data.startswith(ZIP_MAGIC) and CONTENT_TYPES in data and WORD_FOLDER in data:
        return Container.DOCX
    if media_type in PDF_MEDIA_TYPES:
        return Container.PDF
    if media_type in DOCX_MEDIA_TYPES or data.startswith(OLE_MAGIC):
        return Container.DOCX
    return None
