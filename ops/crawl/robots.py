"""robots.txt, read as RFC 9309 says."""

from protego import Protego

USER_AGENT = "seaway/0.1"


class Robots:
    """What a host allows us. Built from the answer to its /robots.txt."""

    def __init__(self, status: int | None, body: bytes) -> None:
        """`status` None: the host did not answer.

        A missing file (4xx) allows everything; a failing host (5xx, no answer) allows nothing (RFC 9309, 2.3.1).
        """
        self._is_closed = status is None or status >= 500
        found = status is not None and 200 <= status < 300
        self._rules = Protego.parse(body.decode("utf-8", "replace") if found else "")

    def allows(self, url: str) -> bool:
        return not self._is_closed and bool(self._rules.can_fetch(url, USER_AGENT))

    @property
    def crawl_delay_s(self) -> float:
        return float(self._rules.crawl_delay(USER_AGENT) or 0.0)
