"""Where an article begins and ends among the lines of a page's main content.

A page whose text lies for the most part in paragraphs of one element (Readability's scoring: a paragraph counts for its
parent, and half for its grandparent) is an article. What the rules of the extractor left before the first and behind the
last of these paragraphs - headlines, bylines, teasers, captions - is cut off. Of every page with paragraphs, a site's own
short phrases are left out. Pages with code or formulas, which stand outside of paragraphs, are left as they are.
"""

import re
from collections.abc import Iterator

from resiliparse.parse.html import DOMNode, HTMLTree

TECHNICAL = "pre, code, math"
FEWEST_PARAGRAPHS = 2
SHORTEST_PARAGRAPH = 25  # characters: shorter ones are labels
MOST_LINKED = 0.5  # of a paragraph's characters; beyond, it is a list of links
LEAST_ARTICLE_SHARE = 0.7  # of the main content's characters; at 0.6 pages with several containers lose text
KEY_CHARS = 30  # letters and digits by which a paragraph and its line are known
SHORT_LINE, SHORT_NOTICE = 120, 220  # characters
ALONE = "advertisement|share|comments?|print|tweet|e-?mail|loading|caption|close|subscribe|recommended|trending|newsletter|getty images?"
OPENING = (
    "share this|share on|related (?:articles|stories|posts)|read more|see more|more from|also read|read also|don't miss|you may also like|"
    "sign up|follow us|like this story|continue reading|image \\d+ of|photo:|click here|view (?:all|more|comments)|filed under|"
    "posted (?:in|on|by)|most (?:read|popular)|story continues|skip to"
)
PHRASE = re.compile(rf"\W*(?:(?:{ALONE})\W*\d*\W*$|(?:{OPENING})\b)", re.IGNORECASE)
NOTICE = re.compile(
    r"cookies|newsletter|all rights reserved|terms of (?:use|service)|privacy policy|©|\((?:image|photo|picture|pic|credit)s?:|getty|"
    r"\bphoto(?:graph)? by\b|read more|click here|sign up|subscribe (?:to|now|for)",
    re.IGNORECASE,
)


def article_of(tree: HTMLTree, main: str) -> str:
    """The article in a page's main content; all of the main content, but for a site's own phrases, where there is none."""
    paragraphs = article_paragraphs(tree)
    if len(paragraphs) < FEWEST_PARAGRAPHS:
        return main
    lines = main.split("\n")
    if sum(map(len, paragraphs)) >= LEAST_ARTICLE_SHARE * len(main):
        lines = _between(lines, paragraphs[0], paragraphs[-1])
    return "\n".join(line for line in lines if not is_boilerplate(line)).strip()


def _between(lines: list[str], first: str, last: str) -> list[str]:
    """The lines from one paragraph to another; all of them where one of the two is not among them."""
    keys, begins, ends = [_key(line) for line in lines], _key(first), _key(last)
    if not begins or begins not in keys or ends not in keys:
        return lines
    begin, end = keys.index(begins), len(keys) - keys[::-1].index(ends)
    return lines[begin:end] or lines


def article_paragraphs(tree: HTMLTree) -> list[str]:
    """The paragraphs of the element that has most text in paragraphs, in the page's order."""
    scores: dict[int, float] = {}
    members: dict[int, list[str]] = {}
    for text, parent in _paragraphs(tree):
        for element, weight in ((parent, 1.0), (parent.parent, 0.5)):
            if element is not None:
                scores[hash(element)] = scores.get(hash(element), 0.0) + weight * len(text)
                members.setdefault(hash(element), []).append(text)
    return members[max(scores, key=scores.__getitem__)] if scores else []


def _paragraphs(tree: HTMLTree) -> Iterator[tuple[str, DOMNode]]:
    if tree.body is None or tree.body.query_selector(TECHNICAL) is not None:
        return
    for paragraph in tree.body.query_selector_all("p")[:]:  # a copy: the list itself searches anew for every element
        text = (paragraph.text or "").strip()
        if len(text) < SHORTEST_PARAGRAPH or paragraph.parent is None:
            continue
        linked = sum(len(link.text or "") for link in paragraph.query_selector_all("a")[:])
        if linked <= MOST_LINKED * len(text):
            yield text, paragraph.parent


def is_boilerplate(line: str) -> bool:
    """Whether a line is a site's own word, not the article's."""
    return (len(line) < SHORT_LINE and PHRASE.match(line) is not None) or (len(line) < SHORT_NOTICE and NOTICE.search(line) is not None)


def _key(text: str) -> str:
    return re.sub(r"\W+", "", text)[:KEY_CHARS]
