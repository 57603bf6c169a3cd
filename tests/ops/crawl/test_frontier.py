from hypothesis import given
from hypothesis import strategies as st

from ops.crawl.frontier import Frontier, resolve_link


def drain(frontier: Frontier) -> list[str]:
    urls = []
    while (url := frontier.pop()) is not None:
        urls.append(url)
    return urls


def test_pages_come_breadth_first_and_links_of_a_page_in_sorted_order() -> None:
    frontier = Frontier(["a"])
    assert frontier.pop() == "a"
    frontier.add(["c", "b"])
    assert frontier.pop() == "b"
    frontier.add(["e", "d"])
    assert drain(frontier) == ["c", "d", "e"]


@given(st.lists(st.sampled_from("abcdefgh"), max_size=30))
def test_no_page_comes_twice_and_none_is_lost(links: list[str]) -> None:
    frontier = Frontier(["a"])
    frontier.add(links)
    frontier.add(reversed(links))
    urls = drain(frontier)
    assert len(urls) == len(set(urls))
    assert set(urls) == {"a", *links}


def test_a_link_is_made_absolute_and_loses_its_fragment() -> None:
    assert resolve_link("http://h.example/a/b.html", "c.html#part") == "http://h.example/a/c.html"
    assert resolve_link("http://h.example/a/b.html", "/") == "http://h.example/"
    assert resolve_link("http://h.example/a?q=1", "?q=2") == "http://h.example/a?q=2"


def test_a_link_off_the_host_or_off_the_web_is_none() -> None:
    page = "http://h.example/a"
    for link in (
        "http://other.example/",
        "https://h.example/",
        "http://h.example:81/",
        "mailto:me@h.example",
        "javascript:void(0)",
        "http://[broken",
    ):
        assert resolve_link(page, link) is None, link
