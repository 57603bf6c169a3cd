"""One polite HTTP exchange at a time: pinned addresses, pacing, retries, capped bodies."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from ops.crawl.robots import USER_AGENT

READ_CHUNK_BYTES = 64 << 10
TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Exchange:
    """A request and its answer as they went over the wire, transfer coding removed.

    `request_head` and `response_head` end with the blank line. `is_cut`: the body was longer than the cap.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    request_head: bytes
    response_head: bytes
    body: bytes
    is_cut: bool


class FetchError(Exception):
    """No answer after every try. `reason` is a word for a table, `detail` a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class _TransientStatusError(Exception):
    def __init__(self, exchange: Exchange) -> None:
        super().__init__(str(exchange.status))
        self.exchange = exchange


class Fetcher:
    """Fetches URLs of one crawl. `addresses` pins hosts to (address, port), as curl's --resolve does.

    Transport errors and transient statuses are tried `attempts` times with growing pauses; redirects are answers like any other.
    """

    def __init__(
        self,
        *,
        addresses: Mapping[str, tuple[str, int]],
        max_body_bytes: int,
        timeout_s: float,
        attempts: int = 3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._client = httpx.Client(
            transport=_PinnedTransport(addresses),
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": USER_AGENT, "Accept": "text/html,text/plain;q=0.9,*/*;q=0.1", "Accept-Encoding": "identity"},
        )
        self._retrying = Retrying(
            retry=retry_if_exception_type((httpx.TransportError, _TransientStatusError)),
            stop=stop_after_attempt(attempts),
            wait=wait_exponential(multiplier=0.5, max=30),
            sleep=sleep,
            reraise=True,
        )

    def close(self) -> None:
        self._client.close()

    def fetch(self, url: str) -> Exchange:
        """Get one URL.

        Raises:
            FetchError: the host could not be reached, or broke off, every time.
        """
        try:
            return self._retrying(self._fetch_once, url)
        except _TransientStatusError as failure:
            return failure.exchange  # a 503 that stays is the site's answer
        except httpx.TransportError as failure:
            raise FetchError(type(failure).__name__, str(failure) or "no further detail") from failure
        except (httpx.InvalidURL, UnicodeError) as failure:
            raise FetchError("InvalidURL", str(failure)) from failure

    def _fetch_once(self, url: str) -> Exchange:
        with self._client.stream("GET", url) as response:
            body, is_cut = _read_capped(response, self._max_body_bytes)
            exchange = Exchange(
                url=url,
                status=response.status_code,
                headers={name.lower(): value for name, value in response.headers.items()},
                request_head=_request_head(response.request),
                response_head=_response_head(response, len(body)),
                body=body,
                is_cut=is_cut,
            )
        if exchange.status in TRANSIENT_STATUSES:
            raise _TransientStatusError(exchange)
        return exchange


class Pacer:
    """Keeps a pause between two requests to one host."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._last: dict[str, float] = {}

    def wait(self, host: str, delay_s: float) -> None:
        if delay_s > 0 and host in self._last:
            left = self._last[host] + delay_s - self._clock()
            if left > 0:
                self._sleep(left)
        self._last[host] = self._clock()


class _PinnedTransport(httpx.HTTPTransport):
    """Connects to a pinned address while URL and Host header keep the name."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        super().__init__()
        self._addresses = addresses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        pinned = self._addresses.get(request.url.host)
        if pinned is None:
            return super().handle_request(request)
        url = request.url.copy_with(host=pinned[0], port=pinned[1])
        moved = httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions)
        return super().handle_request(moved)


def _read_capped(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    body = bytearray()
    for chunk in response.iter_raw(READ_CHUNK_BYTES):
        body += chunk
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


def _request_head(request: httpx.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % pair for pair in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _response_head(response: httpx.Response, body_bytes: int) -> bytes:
    """Status line and headers as sent. The body is stored without its transfer coding, so that header is kept under
    another name (as Common Crawl does) and Content-Length says what is stored."""
    version = response.extensions.get("http_version", b"HTTP/1.1")
    reason = response.extensions.get("reason_phrase", b"")
    lines = [b"%s %d %s" % (version, response.status_code, reason)]
    is_coded = "transfer-encoding" in response.headers
    for name, value in response.headers.raw:
        if is_coded and name.lower() == b"transfer-encoding":
            name = b"X-Crawler-" + name
        lines.append(b"%s: %s" % (name, value))
    if is_coded:
        lines.append(b"Content-Length: %d" % body_bytes)
    return b"\r\n".join(lines) + b"\r\n\r\n"
