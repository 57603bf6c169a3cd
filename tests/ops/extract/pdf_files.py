"""Builders of PDF files, object by object."""

import hashlib
from collections.abc import Sequence

PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
FILE_ID = b"0123456789abcdef"
PERMISSIONS = -44


def pdf(pages: Sequence[Sequence[str]], *, password: str | None = None, contents: Sequence[bytes] = ()) -> bytes:
    """A file of one font. `pages` holds lines, `contents` more pages as content streams.

    A `password` (it may be empty) encrypts it with 40-bit RC4.
    """
    streams = [_lines(lines) for lines in pages] + list(contents)
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(streams)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(streams)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, stream in enumerate(streams):
        number = 4 + 2 * index
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents {number + 1} 0 R >>"
        key = None if password is None else _key(password)
        content = stream if key is None else _rc4(hashlib.md5(key + (number + 1).to_bytes(3, "little") + b"\0\0").digest()[:10], stream)
        objects += [page.encode(), b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)]
    encryption = b""
    if password is not None:
        owner, user = _owner(password).hex().encode(), _rc4(_key(password), PADDING).hex().encode()
        objects.append(b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (owner, user, PERMISSIONS))
        encryption = b"/Encrypt %d 0 R /ID [<%s> <%s>]" % (len(objects), FILE_ID.hex().encode(), FILE_ID.hex().encode())
    return _file(objects, encryption)


def _lines(lines: Sequence[str]) -> bytes:
    shown = b" T* ".join(b"(%s) Tj" % line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252") for line in lines)
    return b"BT /F1 12 Tf 14 TL 72 720 Td %s ET" % shown if lines else b""


def _file(objects: Sequence[bytes], trailer: bytes) -> bytes:
    data = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    at = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    data += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, at)
    return bytes(data)


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + PADDING)[:32]


def _owner(password: str) -> bytes:
    return _rc4(hashlib.md5(_padded(password)).digest()[:5], _padded(password))


def _key(password: str) -> bytes:
    """ISO 32000-1, algorithm 2, revision 2."""
    permissions = (PERMISSIONS & 0xFFFFFFFF).to_bytes(4, "little")
    return hashlib.md5(_padded(password) + _owner(password) + permissions + FILE_ID).digest()[:5]


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    out = bytearray()
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
