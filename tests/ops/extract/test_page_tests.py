"""Tests of pages: what they find, and what the extractor does with ours."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from ops.extract.config import ExtractConfig
from ops.extract.html import html_extractor
from ops.extract.page_tests import ClassScore, Failure, PageTest, failures_of, main, read_tests, score

PAGES = Path(__file__).with_name("page_tests.yaml")
TITLES_LOST = {  # headings before the first paragraph go with the menu above them
    "who wrote it and when is kept",
    "headings stand before what they are of",
}


def page(**asked: object) -> PageTest:
    return PageTest.model_validate({"name": "n", "class": "prose", "html": "<p>x</p>", **asked})


@dataclass(frozen=True)
class Says:
    """An extractor that gives the same text for every page."""

    text: str
    name: str = "says/1"

    def __call__(self, html: str) -> str:
        return self.text


def test_each_kind_of_fault_is_told_with_its_passage():
    test = page(must_contain=["the tide", "not here"], must_not_contain=["menu", "noon"], ordered=["noon", "evening", "noon again", "dusk"])
    assert failures_of(test, "menu  the\n tide at evening, and noon, and noon again") == [
        Failure("n", "missing", "not here"),
        Failure("n", "unwanted", "menu"),
        Failure("n", "unwanted", "noon"),
        Failure("n", "disordered", "evening"),
        Failure("n", "missing", "dusk"),
    ]


def test_passages_in_order_may_not_share_a_place():
    assert failures_of(page(ordered=["tide", "tide"]), "a tide") == [Failure("n", "disordered", "tide")]
    assert failures_of(page(ordered=["tide", "tide"]), "tide tide") == []


def test_white_space_is_one_space():
    assert failures_of(page(must_contain=["a b\n c"]), "x a\u00a0b c\t") == []


def test_scores_are_by_class_and_of_all():
    tests = [page(must_contain=["x"]), page(must_contain=["y"]), page(**{"class": "code", "must_not_contain": ["y"]})]
    assert score(tests, Says("x")) == {
        "all": ClassScore(3, 2, (Failure("n", "missing", "y"),)),
        "prose": ClassScore(2, 1, (Failure("n", "missing", "y"),)),
        "code": ClassScore(1, 1, ()),
    }


def test_a_file_with_an_unknown_class_or_one_name_twice_is_refused(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("- {name: a, class: poems, html: x}\n")
    with pytest.raises(ValidationError, match="poems"):
        read_tests(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("- {name: a, class: code, html: x}\n" * 2)
    with pytest.raises(ValueError, match="a stand there twice"):
        read_tests(tmp_path / "b.yaml")


def test_the_extractor_fails_our_pages_in_nothing_but_titles():
    found = score(read_tests(PAGES), html_extractor(ExtractConfig().html))
    assert {failure.test for failure in found["all"].failures} == TITLES_LOST
    assert {kind: one.tests - one.passed for kind, one in found.items() if kind != "all"} == {
        "prose": 0, "code": 0, "math": 0, "tables": 0, "attribution": 1, "structure": 1, "negatives": 0,
    }  # fmt: skip


def test_the_command_prints_scores_and_failures(capsys: pytest.CaptureFixture[str]):
    assert main([str(PAGES)]) == 1
    printed = capsys.readouterr().out
    assert "who wrote it and when is kept: missing: 'The pilots of Ushant'" in printed
    assert printed.splitlines()[-1].split() == ["all", "20", "of", "22"]
