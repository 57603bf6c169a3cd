import io
from pathlib import Path

import pytest
from fastwarc import ArchiveIterator
from fastwarc.warc import WarcRecordType

from infra.artifacts.writer import Writer
from ops.crawl.crawler import CrawlError, CrawlOutcome, CrawlPlan, crawl
from ops.crawl.fetch import Fetcher, Pacer
from tests.ops.crawl.website import Answer, page, robots, serving

HOST = "site.example"


def plan_of(**changes: object) -> CrawlPlan:
    values = {"seeds": (f"http://{HOST}/",), "instant": "2026-01-02T03:04:05Z", "max_pages": 100, "max_warc_bytes": 1 << 20, "delay_s": 0.0}
    return CrawlPlan(**{**values, **changes})  # type: ignore[arg-type]


def crawl_site(
    pages: dict[str, Answer], directory: Path, plan: CrawlPlan, pacer: Pacer | None = None
) -> tuple[CrawlOutcome, Writer, list[str]]:
    out = Writer(str(directory), scratch_url=str(directory / "scratch"))
    with serving(dict(pages)) as site:
        fetcher = Fetcher(addresses={HOST: site.address}, max_body_bytes=1 << 20, timeout_s=5, sleep=lambda _: None)
        outcome = crawl(plan, fetcher, out, pacer=pacer)
        fetcher.close()
    return outcome, out, site.requests


def responses(path: Path) -> list[tuple[str, int | None, bytes]]:
    records = ArchiveIterator(io.BytesIO(path.read_bytes()), record_types=WarcRecordType.response, verify_digests=True)
    return [(record.headers["WARC-Target-URI"], record.http_headers.status_code, record.reader.read()) for record in records]


def test_the_site_is_fetched_breadth_first_within_its_rules_and_its_host(tmp_path: Path) -> None:
    pages = {
        "/robots.txt": robots("User-agent: *\nDisallow: /secret\n"),
        "/": page("/b", "/a#top", "/secret/x", "http://elsewhere.example/"),
        "/a": page("/deep", "/"),
        "/b": page("/missing"),
        "/deep": page(),
    }
    outcome, _, requests = crawl_site(pages, tmp_path, plan_of())
    assert requests == ["/robots.txt", "/", "/a", "/b", "/deep", "/missing"]
    assert (outcome.pages, outcome.disallowed, outcome.left_in_frontier) == (5, 1, 0)


def test_each_answer_is_a_record_that_another_reader_verifies(tmp_path: Path) -> None:
    pages = {"/": page("/b"), "/b": page(text="second")}
    crawl_site(pages, tmp_path, plan_of())
    assert responses(tmp_path / "warc/00000.warc.gz") == [
        (f"http://{HOST}/", 200, pages["/"][2]),
        (f"http://{HOST}/b", 200, pages["/b"][2]),
    ]
    kinds = [str(r.record_type) for r in ArchiveIterator(io.BytesIO((tmp_path / "warc/00000.warc.gz").read_bytes()))]
    assert kinds == ["warcinfo", "request", "response", "request", "response"]


def test_a_redirect_is_a_record_of_its_own_and_its_target_is_fetched(tmp_path: Path) -> None:
    pages: dict[str, Answer] = {"/": (301, {"Location": "/new"}, b""), "/new": page(text="moved here")}
    outcome, _, _ = crawl_site(pages, tmp_path, plan_of())
    assert [(uri, status) for uri, status, _ in responses(tmp_path / "warc/00000.warc.gz")] == [
        (f"http://{HOST}/", 301),
        (f"http://{HOST}/new", 200),
    ]
    assert outcome.redirects == 1


def test_a_redirect_that_points_at_itself_ends(tmp_path: Path) -> None:
    outcome, _, _ = crawl_site({"/": (302, {"Location": "/"}, b"")}, tmp_path, plan_of())
    assert outcome.pages == 1


def test_the_crawl_stops_at_max_pages_and_says_what_is_left(tmp_path: Path) -> None:
    outcome, _, _ = crawl_site({"/": page("/1", "/2", "/3"), "/1": page()}, tmp_path, plan_of(max_pages=2))
    assert (outcome.pages, outcome.left_in_frontier) == (2, 2)


def test_files_roll_at_their_size_and_lose_no_record(tmp_path: Path) -> None:
    pages = {"/": page("/1", "/2"), "/1": page(text="one"), "/2": page(text="two")}
    _, out, _ = crawl_site(pages, tmp_path, plan_of(max_warc_bytes=1))
    assert [entry.name for entry in out.files] == ["robotstxt/00000.warc.gz"] + [f"warc/{i:05d}.warc.gz" for i in range(3)]
    assert [responses(tmp_path / f"warc/{i:05d}.warc.gz")[0][0][-2:] for i in range(3)] == ["e/", "/1", "/2"]


def test_the_same_site_gives_the_same_bytes_on_any_port(tmp_path: Path) -> None:
    pages = {"/": page("/b", "/a"), "/a": page(text="a"), "/b": page(text="b")}
    _, first, _ = crawl_site(pages, tmp_path / "1", plan_of())
    _, second, _ = crawl_site(pages, tmp_path / "2", plan_of())
    assert first.files == second.files


def test_another_instant_is_another_snapshot(tmp_path: Path) -> None:
    _, first, _ = crawl_site({"/": page()}, tmp_path / "1", plan_of())
    _, second, _ = crawl_site({"/": page()}, tmp_path / "2", plan_of(instant="2026-02-02T03:04:05Z"))
    assert first.files != second.files


def test_the_hosts_crawl_delay_is_kept(tmp_path: Path) -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    pages = {"/robots.txt": robots("User-agent: *\nCrawl-delay: 7\n"), "/": page("/a"), "/a": page()}
    crawl_site(pages, tmp_path, plan_of(delay_s=1.0), Pacer(clock=lambda: now[0], sleep=sleep))
    assert pauses == [7.0]


def test_a_crawl_that_may_fetch_nothing_fails(tmp_path: Path) -> None:
    with pytest.raises(CrawlError, match=r"robots\.txt disallows every seed"):
        crawl_site({"/robots.txt": robots("User-agent: *\nDisallow: /\n"), "/": page()}, tmp_path, plan_of())
