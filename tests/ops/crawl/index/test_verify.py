"""A record is taken only if it is what the index says; every way not to be has its own word."""

import gzip
import io
import random
from collections import Counter

import pytest
from fastwarc.stream_io import Lz4Writer, ZstdWriter

from ops.crawl.index.reasons import FetchReason, RecordError
from ops.crawl.index.verify import Expected, Verified, verify
from tests.ops.crawl.index.crawls import digest_of
from tests.ops.extract.archives import html, http, warc

URL = "http://a.example/"
BODY = html("some words of a page")
RECORD = warc("response", URL, http(BODY), fields={"WARC-Record-ID": "<urn:uuid:00000000-0000-0000-0000-000000000007>"})
MEMBER = gzip.compress(RECORD, mtime=0)


def checked(
    stored: bytes, *, url: str = URL, digest: str | None = digest_of(BODY), record_id: str | None = None, limit: int = 1 << 20
) -> Verified:
    return verify(stored, Expected(url, digest, record_id), limit)


def test_a_member_of_its_own_is_kept_to_the_byte():
    found = checked(MEMBER, record_id="urn:uuid:00000000-0000-0000-0000-000000000007")
    assert found == Verified(MEMBER, len(BODY), "index")


@pytest.mark.parametrize("digest", [digest_of(BODY), f"sha1:{digest_of(BODY)}", f"SHA-1:{digest_of(BODY).lower()}"])
def test_digests_are_read_with_and_without_a_label(digest: str):
    assert checked(MEMBER, digest=digest).verified_by == "index"


def test_without_an_index_digest_the_records_own_one_counts():
    own = warc("response", URL, http(BODY), fields={"WARC-Payload-Digest": f"sha1:{digest_of(BODY)}"})
    assert checked(gzip.compress(own), digest=None).verified_by == "record"
    assert checked(MEMBER, digest=None).verified_by == "nothing"
    wrong = warc("response", URL, http(BODY), fields={"WARC-Payload-Digest": f"sha1:{digest_of(b'other')}"})
    with pytest.raises(RecordError, match="of the record"):
        checked(gzip.compress(wrong), digest=None)


def test_the_digest_of_a_chunked_body_is_over_the_chunks_or_their_content():
    chunked = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    record = gzip.compress(warc("response", URL, http(chunked, headers={"Transfer-Encoding": "chunked"})))
    for payload in (chunked, b"hello world"):
        assert checked(record, digest=digest_of(payload)).verified_by == "index"
    with pytest.raises(RecordError, match="digest-mismatch"):
        checked(record, digest=digest_of(b"hello"))


def test_the_digest_of_a_compressed_body_is_over_what_is_stored():
    body = gzip.compress(BODY)
    record = gzip.compress(warc("response", URL, http(body, headers={"Content-Encoding": "gzip"})))
    assert checked(record, digest=digest_of(body)).payload_bytes == len(body)


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"\x00" * 40, FetchReason.MISSING_RECORD),
        (b"the middle of a page", FetchReason.MISSING_RECORD),
        (gzip.compress(b"the middle of a page"), FetchReason.MISSING_RECORD),
        (gzip.compress(b""), FetchReason.MISSING_RECORD),
        (MEMBER[:-4], FetchReason.WRONG_LENGTH),
        (MEMBER + MEMBER[:7], FetchReason.WRONG_LENGTH),
        (RECORD[:-30], FetchReason.WRONG_LENGTH),
        (MEMBER[:60] + b"\xff\xff\xff\xff" + MEMBER[64:], FetchReason.DAMAGED_RECORD),
        (gzip.compress(warc("response", URL, http(BODY), length=-3)), FetchReason.DAMAGED_RECORD),
        (gzip.compress(RECORD + RECORD), FetchReason.DUPLICATE_RECORD),
        (gzip.compress(warc("revisit", URL, b"")), FetchReason.REVISIT),
        (gzip.compress(warc("request", URL, b"GET / HTTP/1.1\r\n\r\n")), FetchReason.NOT_A_RESPONSE),
        (gzip.compress(warc("response", "http://b.example/", http(BODY))), FetchReason.URI_MISMATCH),
        (gzip.compress(warc("response", URL, http(BODY), fields={"WARC-Truncated": "time"})), FetchReason.TRUNCATED),
        (gzip.compress(warc("response", URL, b"no HTTP")), FetchReason.BAD_HTTP),
        (gzip.compress(warc("response", URL, http(BODY, status=404))), FetchReason.ORIGIN_STATUS),
        (gzip.compress(warc("response", URL, http(BODY, status=206))), FetchReason.ORIGIN_STATUS),
        (gzip.compress(warc("response", URL, http(BODY + b" "))), FetchReason.DIGEST_MISMATCH),
    ],
)
def test_each_way_of_not_being_the_record_has_its_word(stored: bytes, reason: FetchReason):
    with pytest.raises(RecordError) as error:
        checked(stored)
    assert error.value.reason is reason
    assert error.value.detail or reason is FetchReason.REVISIT


def test_another_record_id_is_another_record():
    with pytest.raises(RecordError, match="record-id-mismatch"):
        checked(MEMBER, record_id="<urn:uuid:00000000-0000-0000-0000-000000000008>")


def test_a_bomb_is_refused_before_it_is_inflated():
    bomb = gzip.compress(warc("response", URL, http(b"0" * (64 << 20))), mtime=0)
    with pytest.raises(RecordError, match="too-large"):
        checked(bomb, limit=1 << 20)


def test_damaged_bytes_give_the_record_or_a_typed_error_and_nothing_else():
    """Cut, flipped and spliced at random: the same 3,000 cases each time."""
    rng = random.Random(4)
    reasons: Counter[str] = Counter()
    for base in (MEMBER, RECORD, gzip.compress(RECORD + RECORD)) * 1000:
        data = bytearray(base)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(3)
            if kind == 0:
                del data[at : at + rng.randrange(1, 40)]
            elif kind == 1 and at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            else:
                data[at:at] = rng.choice((b"\r\n\r\n", b"WARC/1.0\r\n", b"\x1f\x8b\x08", b"\x00" * 9, MEMBER[:30]))
        try:
            reasons[checked(bytes(data)).verified_by] += 1
        except RecordError as error:
            reasons[error.reason] += 1
    assert reasons.keys() <= {*FetchReason, "index"}
    assert reasons["index"] < 300  # a blank in a header changes no payload


def test_a_record_that_shares_its_member_is_cut_out():
    shared = gzip.compress(warc("response", "http://b.example/", http(html("a neighbour"))) + RECORD)
    found = checked(shared)
    assert gzip.decompress(found.member) == RECORD


def test_an_arc_record_is_verified_like_any_other():
    block = http(BODY)
    arc = f"{URL} 192.0.2.1 20260101000000 text/html {len(block)}\n".encode() + block + b"\n"
    member = gzip.compress(arc, mtime=0)
    assert checked(member) == Verified(member, len(BODY), "index")
    with pytest.raises(RecordError, match="uri-mismatch"):
        checked(member, url="http://b.example/")
    with pytest.raises(RecordError, match="digest-mismatch"):
        checked(member, digest=digest_of(b"other"))


def test_records_of_other_codings_become_gzip_members():
    assert gzip.decompress(checked(RECORD).member) == RECORD  # an uncompressed archive
    for kind in (Lz4Writer, ZstdWriter):
        archived = io.BytesIO()
        with kind(archived) as stream:
            stream.write(RECORD)
            stream.finish()
            stream.flush()
            stored = archived.getvalue()
        assert gzip.decompress(checked(stored).member) == RECORD
        with pytest.raises(RecordError, match=r"wrong-length|damaged-record"):  # LZ4's decoder does not say which
            checked(stored[:-5])
