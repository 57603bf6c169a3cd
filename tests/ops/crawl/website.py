"""A small web site on loopback whose every answer is scripted."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Website:
    """`pages` maps a path to an answer, or to a function of how often it was asked for before."""

    pages: dict[str, Answer | Callable[[int], Answer]]
    address: tuple[str, int] = ("", 0)
    requests: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


def page(*links: str, text: str = "words") -> Answer:
    anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return 200, {"Content-Type": "text/html"}, f"<html><body><p>{text}</p>{anchors}</body></html>".encode()


def robots(text: str) -> Answer:
    return 200, {"Content-Type": "text/plain"}, text.encode()


@contextmanager
def serving(pages: dict[str, Answer | Callable[[int], Answer]]) -> Iterator[Website]:
    site = Website(pages)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = site.pages.get(self.path, (404, {"Content-Type": "text/html"}, b"<p>gone</p>"))
            if callable(answer):
                answer = answer(site.requests.count(self.path))
            site.requests.append(self.path)
            site.hosts.add(self.headers["Host"])
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return "Thu, 01 Jan 1970 00:00:00 GMT"

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = ("127.0.0.1", server.server_port)
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
