"""Bytes to text: which charset, and whether it is text at all."""

from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

# What browsers read under these names (WHATWG Encoding): the same with more characters.
SUPERSETS = {"shift_jis": "cp932", "euc_kr": "cp949", "gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "iso8859-9": "cp1254"}
SNIFF_BYTES = 4 << 10
SHORTEST_WIDE_TEXT = 16  # bytes; in fewer a zero proves nothing
ESCAPE = b"\x1b"
BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
BINARY_MAGICS = (b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x7fELF", b"\x1f\x8b", b"RIFF", b"\x00asm")
CONTROL = bytes(set(range(32)) - set(b"\t\n\f\r\x1b\x08"))


def is_binary(data: bytes) -> bool:
    """Not text in any charset: a known magic, or control characters that no text has. UTF-32 needs its mark."""
    if any(data.startswith(bom) for bom, _ in BOMS) or _wide_encoding(data):
        return False
    head = data[:SNIFF_BYTES]
    return data.startswith(BINARY_MAGICS) or len(head) - len(head.translate(None, CONTROL)) > len(head) // 100


def looks_like_html(data: bytes) -> bool:
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title")) or b"<html" in head


def _wide_encoding(data: bytes) -> str | None:
    """UTF-16 without its mark, known by the zero bytes of its ASCII characters."""
    head = data[: SNIFF_BYTES // 2 * 2]
    if len(head) < SHORTEST_WIDE_TEXT:
        return None
    low, high = head[::2].count(0), head[1::2].count(0)
    if high > 0.3 * len(head) / 2 and low == 0:
        return "utf-16-le"
    return "utf-16-be" if low > 0.3 * len(head) / 2 and high == 0 else None


def decode_text(data: bytes, charset: str | None, *, is_html: bool) -> tuple[str, float]:
    """Decode by BOM, then strict UTF-8, then the declared charset, then an HTML page's own word, then detection.

    UTF-8 goes before a declaration, since bytes that are valid UTF-8 by chance hardly exist and wrong declarations do.

    Returns:
        The text without a BOM or NULs, and the share of its characters that had to be replaced.
    """
    for bom, encoding in BOMS:
        if data.startswith(bom):
            return _measured(data[len(bom) :].decode(encoding, "replace"))
    if wide := _wide_encoding(data):
        return _measured(data.decode(wide, "replace"))
    if ESCAPE not in data:  # ISO-2022 texts are valid UTF-8 too, and nonsense in it
        try:
            return data.decode("utf-8").replace("\0", ""), 0.0
        except UnicodeDecodeError:
            pass
    declared = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    encoding = declared or detect_encoding(data, from_html_meta=is_html) or "windows-1252"
    return _measured(bytes_to_str(data, SUPERSETS.get(encoding, encoding), errors="replace", fallback_encodings=()))


def _measured(text: str) -> tuple[str, float]:
    return text.replace("\0", ""), text.count("\ufffd") / max(1, len(text))
