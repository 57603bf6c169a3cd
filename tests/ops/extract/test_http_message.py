import gzip
import zlib

import brotli
import pytest

from ops.extract.http_message import BodyTooLargeError, CodingError, HttpError, decoded, parse_response
from tests.ops.extract.archives import http

TEXT = b"the tide comes in " * 50
CAP = 1 << 20


def response_with(body: bytes, **headers: str) -> bytes:
    return http(body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def chunked(data: bytes, size: int = 100) -> bytes:
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x;name=value\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-Gzip", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT, wbits=-15)),
        ("br", brotli.compress(TEXT)),
        ("identity", TEXT),
        ("", TEXT),
        ("gzip, br", brotli.compress(gzip.compress(TEXT))),
        ("gzip", TEXT),  # stored decoded under the old header
    ],
    ids=["gzip", "x-gzip", "zlib", "raw deflate", "br", "identity", "none", "gzip, then br", "already decoded"],
)
def test_content_codings_are_removed(coding: str, body: bytes) -> None:
    assert decoded(parse_response(response_with(body, Content_Encoding=coding)), CAP) == TEXT


def test_chunks_are_joined_and_trailers_left_out() -> None:
    assert decoded(parse_response(response_with(chunked(TEXT), Transfer_Encoding="chunked")), CAP) == TEXT
    both = response_with(chunked(gzip.compress(TEXT)), Transfer_Encoding="Chunked", Content_Encoding="gzip")
    assert decoded(parse_response(both), CAP) == TEXT


def test_a_body_stored_without_the_chunking_its_header_names_is_taken_as_it_is() -> None:
    assert decoded(parse_response(response_with(TEXT, Transfer_Encoding="chunked")), CAP) == TEXT


def test_chunking_that_breaks_off_keeps_what_was_whole() -> None:
    assert decoded(parse_response(response_with(b"5\r\nabcde\r\nzzz", Transfer_Encoding="chunked")), CAP) == b"abcde"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(TEXT)[:-12]),
        ("gzip", b"\x1f\x8b garbage"),
        ("br", b"garbage, not brotli"),
        ("deflate", b"\xff\xff"),
        ("rot13", TEXT),
    ],
    ids=["clipped gzip", "no gzip", "no br", "no deflate", "unknown"],
)
def test_a_coding_that_does_not_decode_is_an_error(coding: str, body: bytes) -> None:
    with pytest.raises(CodingError):
        decoded(parse_response(response_with(body, Content_Encoding=coding)), CAP)


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", gzip.compress(b"0" * 5_000_000)), ("br", brotli.compress(b"0" * 5_000_000)), ("", b"0" * 2_000_000)],
    ids=["gzip", "br", "none"],
)
def test_a_bomb_is_stopped_at_the_cap(coding: str, body: bytes) -> None:
    with pytest.raises(BodyTooLargeError):
        decoded(parse_response(response_with(body, Content_Encoding=coding)), CAP)


def test_odd_heads_are_understood() -> None:
    response = parse_response(
        b"HTTP/1.0 200\nCONTENT-type:  Text/HTML ; Charset='ISO-8859-1'\nbroken line\nContent-Type: text/plain\n\nbody"
    )
    assert (response.status, response.media_type, response.charset, response.body) == (200, "text/html", "ISO-8859-1", b"body")
    assert parse_response(b"HTTP/1.1 204 No Content\r\n").body == b""
    with pytest.raises(HttpError):
        parse_response(b"<html>")
