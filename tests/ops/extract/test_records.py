import gzip
import io
import random
import tracemalloc

import pyarrow as pa
import pytest
from fastwarc import ArchiveIterator
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.extract.cursor import GzipCursor
from ops.extract.records import Damage, Record, read_records
from tests.ops.extract.archives import gzipped, http, page, warc

CAP = 1 << 20
URIS = [f"http://h.example/{n}" for n in range(5)]
PAGES = [page(uri, f"text of {uri}") for uri in URIS]

ARC = (
    b"filedesc://a.arc 0.0.0.0 20080430204825 text/plain 76\n1 1 InternetArchive\n"
    b"URL IP-address Archive-date Content-type Archive-length\n\n\n"
    b"http://h.example/a b 10.0.0.1 20080430204826 text/html 30\nHTTP/1.0 200 OK\r\n\r\n<p>one</p>\n\n"
    b"http://h.example/2 10.0.0.1 20080430204827 text/html 29\nHTTP/1.0 200 OK\r\n\r\n<p>two</p>\n"
)


def zstd(records: list[bytes]) -> bytes:
    return b"".join(pa.compress(record, "zstd", asbytes=True) for record in records)


def read(data: bytes, cap: int = CAP) -> list[Record | Damage]:
    return list(read_records(io.BytesIO(data), cap))


def uris(items: list[Record | Damage]) -> list[str]:
    return [item.uri for item in items if isinstance(item, Record)]


def damages(items: list[Record | Damage]) -> list[Damage]:
    return [item for item in items if isinstance(item, Damage)]


@pytest.mark.parametrize(
    "data", [b"".join(PAGES), gzipped(PAGES), gzip.compress(b"".join(PAGES)), zstd(PAGES)], ids=["plain", "gzip", "one-member", "zstd"]
)
def test_records_come_in_order_and_are_what_another_reader_reads(data: bytes) -> None:
    items = read(data)
    assert uris(items) == URIS
    expected = [(r.headers["WARC-Target-URI"], r.reader.read()) for r in ArchiveIterator(io.BytesIO(data), parse_http=False)]
    assert [(r.uri, r.block) for r in items if isinstance(r, Record)] == expected


@pytest.mark.parametrize("data", [b"".join(PAGES), gzipped(PAGES), zstd(PAGES)], ids=["plain", "gzip", "zstd"])
def test_offset_and_length_are_enough_to_read_a_record_again(data: bytes) -> None:
    for record in read(data):
        assert isinstance(record, Record)
        [again] = read(data[record.offset : record.offset + record.length])
        assert isinstance(again, Record)
        assert (again.uri, again.block, again.kind) == (record.uri, record.block, record.kind)


def test_records_that_share_a_member_carry_its_offset_and_are_found_in_it() -> None:
    data = gzipped([b"", PAGES[0] + PAGES[1], PAGES[2]])
    first, second, third = read(data)
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert first.offset == second.offset < third.offset
    assert URIS[1] in uris(read(data[second.offset : second.offset + second.length]))


def test_arc_records_are_read_with_spaces_in_their_urls() -> None:
    filedesc, one, two = read(ARC)
    assert isinstance(filedesc, Record)
    assert isinstance(one, Record)
    assert isinstance(two, Record)
    assert (filedesc.kind, one.kind, two.kind) == ("warcinfo", "response", "response")
    assert (one.uri, two.uri) == ("http://h.example/a b", "http://h.example/2")
    assert two.block == b"HTTP/1.0 200 OK\r\n\r\n<p>two</p>"


@pytest.mark.parametrize("is_gzip", [False, True], ids=["plain", "gzip"])
def test_a_cut_at_any_byte_keeps_what_came_before_and_never_raises(is_gzip: bool) -> None:
    data = gzipped(PAGES) if is_gzip else b"".join(PAGES)
    ends = [r.offset + r.length for r in read(data) if isinstance(r, Record)]
    for cut in range(0, len(data), 7):
        items = read(data[:cut])
        whole = [uri for uri, end in zip(URIS, ends, strict=True) if end <= cut]
        assert uris(items)[: len(whole)] == whole
        lost = damages(items)
        assert len(lost) <= 1
        if lost:
            assert lost[0].offset + lost[0].length == cut
            assert lost[0].offset == ([0, *ends])[len(uris(items))]


def test_a_zstandard_file_cut_at_any_byte_keeps_what_came_before() -> None:
    data = zstd(PAGES)
    ends = [r.offset + r.length for r in read(data) if isinstance(r, Record)]
    assert ends[-1] == len(data)
    for cut in range(5, len(data), 7):
        items = read(data[:cut])
        whole = [uri for uri, end in zip(URIS, ends, strict=True) if end <= cut]
        assert uris(items) == whole
        assert [d.offset for d in damages(items)] == ([] if cut in ends else [[0, *ends][len(whole)]])


def test_records_before_the_cut_of_a_member_that_holds_many_are_kept() -> None:
    whole = gzip.compress(b"".join(PAGES))
    items = read(whole[:-12])
    assert len(uris(items)) >= len(URIS) - 1
    assert uris(items) == URIS[: len(uris(items))]
    assert [(d.offset, d.reason) for d in damages(items)] == [(0, "truncated")]


def by_streaming(data: bytes, patch: pytest.MonkeyPatch) -> list[Record | Damage]:
    """What is read where no member is inflated whole."""
    with patch.context() as context:
        context.setattr(GzipCursor, "_inflate_whole", lambda _: False)
        return read(data)


def test_members_inflated_whole_give_what_a_stream_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    stored = page("http://h.example/stored", "not the next one: " + gzip.compress(b"", mtime=0)[:10].decode("latin-1") * 3)
    pages = [page(f"http://h.example/{size}", rng.randbytes(size // 2).hex()) for size in (0, 10, 3_000, 200_000, 900_000)]
    timed = [gzip.compress(record, mtime=1_700_000_000 + number) for number, record in enumerate(pages)]
    members = [
        *(gzip.compress(record, mtime=0) for record in pages),
        *timed,
        gzip.compress(stored, 0, mtime=0),
        gzip.compress(b"", mtime=0),
    ]
    rng.shuffle(members)
    whole = b"".join(members)
    assert damages(read(whole)) == []
    assert read(whole) == by_streaming(whole, monkeypatch)
    for _ in range(60):
        at, kind = rng.randrange(len(whole)), rng.choice(["flip", "splice", "cut", "size"])
        damaged = {
            "flip": whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :],
            "splice": whole[:at] + rng.randbytes(rng.randrange(1, 40)) + whole[at:],
            "cut": whole[:at],
            "size": members[0][:-4] + rng.randbytes(4) + whole,
        }[kind]
        assert read(damaged) == by_streaming(damaged, monkeypatch), (kind, at)


def test_after_a_damaged_member_reading_goes_on_at_the_next() -> None:
    members = [gzip.compress(record, mtime=0) for record in PAGES]
    broken = members[1][:40] + b"\x00" * 20 + members[1][60:]
    items = read(members[0] + broken + b"".join(members[2:]))
    assert uris(items) == [URIS[0], *URIS[2:]]
    assert [(d.offset, d.length, d.reason) for d in damages(items)] == [(len(members[0]), len(broken), "bad-record")]


def test_bytes_between_members_are_reported_and_passed_over() -> None:
    members = [gzip.compress(record, mtime=0) for record in PAGES[:2]]
    items = read(members[0] + b"garbage\x1f\x8b\x08garbage" + members[1])
    assert uris(items) == URIS[:2]
    assert [d.detail for d in damages(items)] == [f"no gzip member begins at offset {len(members[0])}"]


@pytest.mark.parametrize("change", [-9, 9], ids=["too-short", "too-long"])
def test_a_wrong_content_length_costs_one_record_of_an_uncompressed_file(change: int) -> None:
    block = http(b"<p>x</p>" * 9)
    wrong = warc("response", "http://h.example/wrong", block, length=len(block) + change)
    items = read(PAGES[0] + wrong + PAGES[1])
    assert uris(items) == URIS[:2]
    assert [(d.uri, d.reason) for d in damages(items)] == [("http://h.example/wrong", "bad-record")]


@pytest.mark.parametrize("length", ["", "abc", "-5", "9" * 19])
def test_a_content_length_that_is_no_number_is_a_damage(length: str) -> None:
    bad = PAGES[1].replace(b"Content-Length: ", b"Content-Length: %s\r\nX: " % length.encode())
    items = read(PAGES[0] + bad + PAGES[2])
    assert uris(items) == [URIS[0], URIS[2]]
    assert [d.uri for d in damages(items)] == [URIS[1]]


def test_folded_header_lines_and_odd_cases_are_understood() -> None:
    head = b"warc/1.0\r\nwarc-type: Response\r\nWARC-Target-URI:\r\n <http://h.example/>\r\nno colon here\r\ncontent-LENGTH: 3\r\n"
    record = head + b"\r\nabc\r\n\r\n"
    [found] = read(record)
    assert isinstance(found, Record)
    assert (found.kind, found.uri, found.block) == ("response", "http://h.example/", b"abc")


def test_empty_members_and_blank_lines_are_nothing() -> None:
    assert read(b"") == []
    assert read(b"\r\n\r\n") == []
    assert uris(read(gzip.compress(b"") * 3 + gzipped(PAGES[:1]) + gzip.compress(b""))) == URIS[:1]


def test_a_record_over_the_cap_is_cut_and_the_next_one_is_read() -> None:
    big = warc("response", "http://h.example/big", b"z" * 50_000)
    items = read(gzipped([big, PAGES[0]]), cap=1_000)
    assert isinstance(items[0], Record)
    assert items[0].is_cut
    assert (len(items[0].block), items[0].block_bytes) == (1_000, 50_000)
    assert uris(items) == ["http://h.example/big", URIS[0]]


def test_memory_is_bounded_by_the_cap_whatever_a_member_inflates_to() -> None:
    data = gzipped([warc("response", "http://h.example/big", b"z" * (64 << 20)), PAGES[0]])
    tracemalloc.start()
    assert len(read(data, cap=1 << 20)) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(["plain", "gzip", "inside"]), st.randoms(use_true_random=False))
def test_no_bytes_whatever_make_it_raise_or_overlap(noise: bytes, where: str, chance: random.Random) -> None:
    base = gzipped(PAGES[:3]) if where == "gzip" else b"".join(PAGES[:3])
    at = chance.randrange(len(base))
    data = noise if where == "plain" else base[:at] + noise + base[at + chance.randrange(40) :]
    items = read(data)
    assert all(0 <= item.offset <= item.offset + item.length <= len(data) for item in items)
    assert [item.offset for item in items] == sorted(item.offset for item in items)
