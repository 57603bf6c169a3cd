import socket
import threading
from collections.abc import Iterator

import pytest

from ops.crawl.fetch import Fetcher, FetchError, Pacer
from tests.ops.crawl.website import serving

HOST = "site.example"


@pytest.fixture
def pauses() -> list[float]:
    return []


def fetcher_for(address: tuple[str, int], pauses: list[float], *, max_body_bytes: int = 1 << 20) -> Fetcher:
    return Fetcher(addresses={HOST: address}, max_body_bytes=max_body_bytes, timeout_s=5, sleep=pauses.append)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it
        yield holder.getsockname()[1]


def test_the_host_name_is_sent_and_the_pinned_address_is_reached(pauses: list[float]) -> None:
    with serving({"/a?b=1": (200, {"X-Odd": "yes"}, b"body")}) as site:
        exchange = fetcher_for(site.address, pauses).fetch(f"http://{HOST}/a?b=1")
    assert site.hosts == {HOST}
    assert exchange.body == b"body"
    assert exchange.request_head.startswith(b"GET /a?b=1 HTTP/1.1\r\nHost: site.example\r\n")
    assert exchange.response_head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"\r\nX-Odd: yes\r\n" in exchange.response_head
    assert exchange.response_head.endswith(b"\r\n\r\n")


def test_a_transient_status_is_tried_again_with_growing_pauses(pauses: list[float]) -> None:
    def answer(before: int) -> tuple[int, dict[str, str], bytes]:
        return (503, {}, b"busy") if before < 2 else (200, {}, b"ready")

    with serving({"/": answer}) as site:
        exchange = fetcher_for(site.address, pauses).fetch(f"http://{HOST}/")
    assert (exchange.status, exchange.body) == (200, b"ready")
    assert pauses == sorted(pauses)
    assert len(pauses) == 2
    assert all(pause > 0 for pause in pauses)


def test_a_status_that_stays_is_the_sites_answer(pauses: list[float]) -> None:
    with serving({"/": (503, {}, b"busy")}) as site:
        exchange = fetcher_for(site.address, pauses).fetch(f"http://{HOST}/")
    assert (exchange.status, exchange.body) == (503, b"busy")
    assert site.requests == ["/"] * 3


def test_a_host_that_is_not_there_is_an_error_after_every_try(closed_port: int, pauses: list[float]) -> None:
    with pytest.raises(FetchError) as caught:
        fetcher_for(("127.0.0.1", closed_port), pauses).fetch(f"http://{HOST}/")
    assert caught.value.reason == "ConnectError"
    assert len(pauses) == 2


def test_a_redirect_is_an_answer_and_is_not_followed(pauses: list[float]) -> None:
    with serving({"/": (302, {"Location": "/b"}, b"")}) as site:
        exchange = fetcher_for(site.address, pauses).fetch(f"http://{HOST}/")
    assert exchange.status == 302
    assert site.requests == ["/"]


def test_a_body_over_the_cap_is_cut_and_says_so(pauses: list[float]) -> None:
    with serving({"/": (200, {}, b"x" * 5_000)}) as site:
        exchange = fetcher_for(site.address, pauses, max_body_bytes=1_000).fetch(f"http://{HOST}/")
    assert exchange.is_cut
    assert len(exchange.body) == 1_000


def test_a_chunked_body_is_stored_whole_under_a_header_that_tells() -> None:
    def serve_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener,))
        thread.start()
        exchange = fetcher_for(("127.0.0.1", listener.getsockname()[1]), []).fetch(f"http://{HOST}/")
        thread.join()
    assert exchange.body == b"abcde"
    assert b"\r\nX-Crawler-Transfer-Encoding: chunked\r\n" in exchange.response_head
    assert b"\r\nContent-Length: 5\r\n" in exchange.response_head


def test_the_pacer_keeps_the_pause_per_host() -> None:
    now, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    pacer = Pacer(clock=lambda: now[0], sleep=sleep)
    pacer.wait("a", 2.0)
    now[0] += 0.5
    pacer.wait("b", 2.0)
    pacer.wait("a", 2.0)
    now[0] += 5.0
    pacer.wait("a", 2.0)
    assert pauses == [1.5]
