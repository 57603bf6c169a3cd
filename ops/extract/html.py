"""HTML to text, behind an interface: a name, a version, a function."""

from importlib.metadata import version
from typing import Protocol

from resiliparse.extract.html2text import extract_plain_text


class HtmlExtractor(Protocol):
    """Turns a page into text. `name` holds the version: another version is another extractor."""

    @property
    def name(self) -> str: ...

    def __call__(self, html: str) -> str: ...


class ResiliparseExtractor:
    """Main content by rules on a lexbor DOM, whitespace of `pre` kept.

    4-gram F1 0.93 on the 181-page article benchmark at 270-337 pages per CPU-second, against 0.96 at 18-22 for trafilatura.
    """

    def __init__(self) -> None:
        self.name = f"resiliparse/{version('resiliparse')}"

    def __call__(self, html: str) -> str:
        return extract_plain_text(html, main_content=True, alt_texts=False).strip()


def html_extractor(name: str) -> HtmlExtractor:
    """The extractor that a config names."""
    return {"resiliparse": ResiliparseExtractor}[name]()
