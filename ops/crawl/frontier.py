"""The frontier: which URLs wait, in an order that depends on the pages alone."""

from collections import deque
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit, urlunsplit


class Frontier:
    """Breadth first; links of one page in sorted order; every URL once."""

    def __init__(self, seeds: Iterable[str]) -> None:
        self._waiting: deque[str] = deque()
        self._seen: set[str] = set()
        for seed in seeds:
            self._push(seed)

    def __len__(self) -> int:
        return len(self._waiting)

    def pop(self) -> str | None:
        return self._waiting.popleft() if self._waiting else None

    def add(self, links: Iterable[str]) -> None:
        for link in sorted(set(links)):
            self._push(link)

    def _push(self, url: str) -> None:
        if url not in self._seen:
            self._seen.add(url)
            self._waiting.append(url)


def resolve_link(page_url: str, link: str) -> str | None:
    """A link's absolute URL without its fragment; None when it leaves the page's host or is no web address."""
    try:
        parts = urlsplit(urljoin(page_url, link.strip()))
        here = urlsplit(page_url)
        if parts.scheme not in ("http", "https") or (parts.scheme, parts.netloc.lower()) != (here.scheme, here.netloc.lower()):
            return None
    except ValueError:  # an unbalanced bracket in a host, a port that is no number
        return None
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", parts.query, ""))
