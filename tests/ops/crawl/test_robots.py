import pytest

from ops.crawl.robots import Robots

RULES = b"User-agent: *\nDisallow: /private/\nAllow: /private/open\nCrawl-delay: 2.5\nDisallow: /*.tmp$\n"


def test_rules_are_honoured_with_wildcards_and_the_longest_match() -> None:
    robots = Robots(200, RULES)
    assert robots.allows("http://h.example/public")
    assert not robots.allows("http://h.example/private/x")
    assert robots.allows("http://h.example/private/open")
    assert not robots.allows("http://h.example/a.tmp")
    assert robots.crawl_delay_s == 2.5


@pytest.mark.parametrize("status", [404, 403])
def test_a_missing_robots_file_allows_everything(status: int) -> None:
    assert Robots(status, RULES).allows("http://h.example/private/x")


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_failing_host_allows_nothing(status: int | None) -> None:
    assert not Robots(status, b"").allows("http://h.example/")
