"""No text can become more than text: not a tag, not an attribute, not a direction of writing, not a control character."""

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.report.markup import Markup, element, joined, text


class Reader(HTMLParser):
    """An independent reader of HTML: which tags with which attributes, and the text in between."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attributes))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='x",
    "</style></title>",
    "&lt;b&gt;",
    "<!--",
    "]]>",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_text_stays_text_in_content_and_in_attributes(value: str):
    found = read(element("p", value, title=value))
    assert found.tags == [("p", [("title", value)])]
    assert found.text == value


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text(max_size=20, alphabet="<>&\"'/ab=!- \n"))
def test_any_text_comes_back_from_a_page_as_it_is_shown(one: str, two: str):
    found = read(element("p", one, element("b", two), class_=two))
    assert [tag for tag, _ in found.tags] == ["p", "b"]
    assert found.text.replace("\r", "") == html.unescape(text(one)) + html.unescape(text(two))


def test_what_acts_on_a_screen_is_made_visible():
    assert text("a\x00b\x1b[31mc\x7f") == "a␀b␛[31mc␡"
    assert text("\u202eevil\u202c \u2066x\u2069 \u200f") == "⟨U+202E⟩evil⟨U+202C⟩ ⟨U+2066⟩x⟨U+2069⟩ ⟨U+200F⟩"
    assert text("tabs\tand\nlines") == "tabs\tand\nlines"


def test_markup_is_not_escaped_twice_and_names_are_never_data():
    assert element("p", joined(element("b", "1 < 2"), text(" & 3"))) == "<p><b>1 &lt; 2</b> &amp; 3</p>"
    assert isinstance(element("p"), Markup)
    for name in ("p onload=x", "", "P>"):
        with pytest.raises(ValueError, match="is no name of HTML"):
            element(name)
