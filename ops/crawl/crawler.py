"""A crawl of one host: breadth first, within its robots.txt, into WARC files."""

from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from infra.artifacts.writer import Writer
from ops.crawl.fetch import Exchange, Fetcher, FetchError, Pacer
from ops.crawl.frontier import Frontier, resolve_link
from ops.crawl.links import links_of
from ops.crawl.robots import Robots
from ops.crawl.warc_writer import RollingWarc, WarcWriter

HTML_MEDIA_TYPES = ("text/html", "application/xhtml+xml")


class CrawlError(RuntimeError):
    """The crawl can't be called one: nothing was fetched."""


@dataclass(frozen=True)
class CrawlPlan:
    """What to crawl: `seeds` are absolute URLs of one host; `delay_s` is raised to the host's own crawl-delay."""

    seeds: tuple[str, ...]
    instant: str
    max_pages: int
    max_warc_bytes: int
    delay_s: float


@dataclass(frozen=True)
class FailedFetch:
    """A URL that gave no answer."""

    uri: str
    reason: str
    detail: str


@dataclass
class CrawlOutcome:
    """Counts of one crawl. `pages` are exchanges written, redirects and 404s among them."""

    pages: int = 0
    redirects: int = 0
    body_bytes: int = 0
    disallowed: int = 0
    left_in_frontier: int = 0
    failures: list[FailedFetch] = field(default_factory=list)


def crawl(plan: CrawlPlan, fetcher: Fetcher, out: Writer, *, pacer: Pacer | None = None) -> CrawlOutcome:
    """Fetch from the seeds outward; write `warc/NNNNN.warc.gz`, and robots.txt apart as `robotstxt/00000.warc.gz`.

    Which pages are fetched, and in which order, depends on the pages alone.

    Raises:
        CrawlError: no seed gave a page.
    """
    pacer = pacer or Pacer()
    robots = _read_robots(plan, fetcher, out)
    delay_s = max(plan.delay_s, robots.crawl_delay_s)
    frontier, outcome = Frontier(plan.seeds), CrawlOutcome()
    with RollingWarc(out, instant=plan.instant, max_bytes=plan.max_warc_bytes) as warc:
        while outcome.pages < plan.max_pages and (url := frontier.pop()) is not None:
            if not robots.allows(url):
                outcome.disallowed += 1
                continue
            pacer.wait(urlsplit(url).netloc, delay_s)
            try:
                exchange = fetcher.fetch(url)
            except FetchError as failure:
                outcome.failures.append(FailedFetch(url, failure.reason, failure.detail))
                continue
            warc.write(exchange)
            _count(outcome, exchange)
            frontier.add(_next_links(exchange))
            out.progress(outcome.pages, min(plan.max_pages, outcome.pages + len(frontier)), "pages", body_bytes=outcome.body_bytes)
    outcome.left_in_frontier = len(frontier)
    if outcome.pages == 0:
        why = outcome.failures[0].detail if outcome.failures else "robots.txt disallows every seed"
        raise CrawlError(f"no page of {plan.seeds[0]} could be fetched ({why}); check the seeds and that the host answers")
    return outcome


def _count(outcome: CrawlOutcome, exchange: Exchange) -> None:
    outcome.pages += 1
    outcome.body_bytes += len(exchange.body)
    outcome.redirects += _redirect_target(exchange) is not None


def _next_links(exchange: Exchange) -> list[str]:
    target = _redirect_target(exchange)
    if target is not None:
        resolved = resolve_link(exchange.url, target)
        return [] if resolved is None else [resolved]
    media_type = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_page = exchange.status == 200 and media_type in HTML_MEDIA_TYPES and "content-encoding" not in exchange.headers
    return links_of(exchange.url, exchange.body) if is_page else []


def _redirect_target(exchange: Exchange) -> str | None:
    return exchange.headers.get("location") if 300 <= exchange.status < 400 else None


def _read_robots(plan: CrawlPlan, fetcher: Fetcher, out: Writer) -> Robots:
    name = "robotstxt/00000.warc.gz"
    with out.open(name) as stream:
        writer = WarcWriter(stream, instant=plan.instant, name=name)
        try:
            exchange = fetcher.fetch(urljoin(plan.seeds[0], "/robots.txt"))
        except FetchError:
            return Robots(None, b"")
        writer.write_exchange(exchange)
        return Robots(exchange.status, exchange.body)
