"""Real pages as a web archive and as a table."""

import gzip
import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ops.extract.text import decode_text

PAGES = ("html_extraction/**/*.html.gz", "crawl/html_pages_autopager/*.html.gz")
INSTANT = "2026-01-01T00:00:00Z"


def write_pages(data: Path, folder: Path) -> None:
    """The article benchmark as a table and as an archive, and all real pages as another."""
    benchmark = data / "html_extraction" / "scrapinghub"
    truth = json.loads((benchmark / "ground-truth.json").read_text())
    articles = {name: gzip.decompress((benchmark / "html" / f"{name}.html.gz").read_bytes()) for name in sorted(truth)}
    html = [decode_text(page, None, is_html=True)[0] for page in articles.values()]
    wanted = [truth[name]["articleBody"] for name in articles]
    pq.write_table(pa.table({"name": list(articles), "html": html, "wanted": wanted}), folder / "articles.parquet", compression="zstd")
    write_warc(folder / "articles.warc.gz", articles)
    paths = sorted(path for pattern in PAGES for path in data.glob(pattern))
    write_warc(folder / "pages.warc.gz", {str(path.relative_to(data)): gzip.decompress(path.read_bytes()) for path in paths})


def write_warc(path: Path, pages: dict[str, bytes]) -> None:
    """A request and a response for every page, a gzip member each, as Common Crawl lays them out.

    `WARC-Identified-Payload-Type` is Common Crawl's; without it datatrove asks libmagic about each record and drops what that
    does not call HTML, so the two sides would not read the same.
    """
    with path.open("wb") as file:
        for name, page in pages.items():
            request = f"GET /{name} HTTP/1.1\r\nHost: example.org\r\nUser-Agent: bench\r\n\r\n".encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n".encode()
            file.write(_member("request", name, request, []))
            file.write(_member("response", name, head + page, [("WARC-Identified-Payload-Type", "text/html")]))


def _member(kind: str, name: str, block: bytes, fields: list[tuple[str, str]]) -> bytes:
    lines = [
        ("WARC-Type", kind),
        ("WARC-Record-ID", f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{kind} {name}')}>"),
        ("WARC-Date", INSTANT),
        ("WARC-Target-URI", f"https://example.org/{name}"),
        *fields,
        ("Content-Type", f"application/http; msgtype={kind}"),
        ("Content-Length", str(len(block))),
    ]
    text = "WARC/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines) + "\r\n"
    return gzip.compress(text.encode() + block + b"\r\n\r\n", mtime=0)
