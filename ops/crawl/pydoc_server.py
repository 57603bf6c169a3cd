"""The documentation server that Python ships, as a process of its own: prints its port, stops when stdin closes.

Run by path with `-s -S -P -B` and a bare environment, so it documents the standard library alone and says little
about the machine. It adds to `python -m pydoc -b` what a good web server has: robots.txt, 404 for a page that isn't
there, and (so that a crawl can be repeated to the byte) a fixed Date and platform name.
Imports nothing but the standard library: it runs outside our environment.
"""

import http.server
import os
import platform
import pydoc
import re
import sys
import threading
import warnings

FIXED_DATE = "Thu, 01 Jan 1970 00:00:00 GMT"

# Default values print with their address, other in every process. pydoc removes it from data; this does so in signatures.
ADDRESS = re.compile(r"(?:(?:\s|&nbsp;)at(?:\s|&nbsp;)0x|(?<=PyDLL 'None', handle) )[0-9a-f]{6,16}")

# pydoc imports what it documents. These start programs, open windows or browsers, talk to the network, print, or are
# test suites of many hours; the rest are forms and style sheets.
DISALLOWED = (
    "/*.__main__.",
    "/__main__.",
    "/__hello__.",
    "/__phello__.",
    "/antigravity.",
    "/idlelib.",
    "/lib2to3.",
    "/pydoc_data/",
    "/test.",
    "/this.",
    "/tkinter.",
    "/turtle.",
    "/turtledemo.",
    "/get?",
    "/search?",
)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET from pydoc's own page builder."""

    page_of = staticmethod(pydoc._url_handler)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if self.path == "/robots.txt":
            rules = "".join(f"Disallow: {path}\n" for path in DISALLOWED)
            return self._answer(200, "text/plain", f"User-agent: *\n{rules}")
        page = ADDRESS.sub("", self.page_of(self.path, "text/html"))
        return self._answer(404 if "<title>Pydoc: Error - " in page else 200, "text/html", page)

    def _answer(self, status: int, media_type: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")  # a lone surrogate in a docstring must not kill the page
        self.send_response(status)
        self.send_header("Content-Type", f"{media_type}; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return FIXED_DATE

    def log_message(self, format: str, *args: object) -> None:
        return None


def main() -> None:
    warnings.simplefilter("ignore")  # deprecated modules say so when they are imported
    platform.platform = lambda *_, **__: sys.platform  # each page's header names the running kernel
    # The page of `sys` shows these, and they name where the repository lies.
    sys.path_importer_cache.pop(__file__, None)
    sys.argv, sys.orig_argv, sys.modules["__main__"].__file__ = ["pydoc"], ["pydoc"], "pydoc"
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a documented module that prints must not block on our pipe
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    server.serve_forever()


def _stop_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
