"""Articles are cut out of the main content; of other pages with paragraphs only a site's own phrases go."""

import pytest
from resiliparse.parse.html import HTMLTree

from ops.extract.article import article_of, article_paragraphs, is_boilerplate

SENTENCES = [f"This is sentence number {n} of a long article about the river and the sea, and it goes on for a while." for n in range(12)]
BODY = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
LINES = "\n\n".join(SENTENCES)


def page(inner: str) -> HTMLTree:
    return HTMLTree.parse(f"<html><body>{inner}</body></html>")


def test_what_stands_before_and_behind_the_paragraphs_of_an_article_is_cut_off() -> None:
    tree = page(f"<h1>Headline</h1><div>{BODY}</div><div>Teaser one</div><div>Teaser two</div>")
    assert article_of(tree, f"Headline\n\n{LINES}\n\nTeaser one\nTeaser two") == LINES


def test_a_list_and_a_heading_inside_the_article_stay() -> None:
    main = f"{SENTENCES[0]}\n\nA heading\n\n  • first\n  • second\n\n" + "\n\n".join(SENTENCES[1:])
    tree = page(f"<div><p>{SENTENCES[0]}</p><h2>A heading</h2><ul><li>first</li><li>second</li></ul>{BODY[BODY.index('</p>') + 4 :]}</div>")
    assert article_of(tree, main) == main


def test_a_page_that_is_no_article_is_left_as_it_is() -> None:
    reference = "class Path\n\n  • joinpath(*other)\n  • exists()\n\n" * 20
    assert article_of(page(f"<div><p>{SENTENCES[0]}</p></div><dl><dt>x</dt></dl>"), reference) == reference
    assert article_of(page("no paragraphs"), "no paragraphs") == "no paragraphs"


def test_a_page_whose_paragraphs_are_not_most_of_it_loses_the_sites_own_phrases_alone() -> None:
    items = "\n".join(f"Item {n} of a list that no paragraph holds, with words enough to outweigh the paragraphs" for n in range(30))
    tree = page(f"<div>{BODY}</div><div>{items}</div>")
    assert article_of(tree, f"Headline\n{LINES}\nADVERTISEMENT\n{items}") == f"Headline\n{LINES}\n{items}"


def test_a_page_with_code_keeps_what_stands_behind_its_paragraphs() -> None:
    main = f"{LINES}\n\ndef tide(n):\n    return n % 24"
    assert article_of(page(f"<div>{BODY}</div><pre>def tide(n):\n    return n % 24</pre>"), main) == main


def test_paragraphs_of_links_and_labels_do_not_count() -> None:
    links = "".join(f'<p><a href="/{n}">Another story of this site that nobody asked for, number {n}</a></p>' for n in range(30))
    assert article_paragraphs(page(f"<nav>{links}</nav><main>{BODY}<p>Label</p></main>")) == SENTENCES


def test_paragraphs_that_the_main_content_lacks_change_nothing() -> None:
    assert article_of(page(f"<div>{BODY}</div>"), "Something else.\nAnother line.") == "Something else.\nAnother line."


@pytest.mark.parametrize("line", ["ADVERTISEMENT", "Comments 12", "Read more: the tide", "(Image: GETTY)", "This website uses cookies."])
def test_a_sites_own_phrases_are_boilerplate(line: str) -> None:
    assert is_boilerplate(line)


@pytest.mark.parametrize("line", ['print("share")', "Close the door, she said.", "Share prices fell on Monday.", "x" * 300 + " cookies"])
def test_sentences_and_code_with_the_same_words_are_not(line: str) -> None:
    assert not is_boilerplate(line)
