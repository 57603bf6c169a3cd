"""Tests of an HTML extractor that people can read and add to: a page, and what its text must hold, must not hold, and in which order.

A file of them is a YAML list of `PageTest`. White space is one space on both sides; all else is compared to the letter. Scores are
by class, so that a gain in prose can't hide a loss in code:

    python -m ops.extract.page_tests pages.yaml
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ops.extract.config import ExtractConfig
from ops.extract.html import HtmlExtractor, html_extractor

PageClass = Literal["prose", "code", "math", "tables", "attribution", "structure", "negatives"]
Fault = Literal["missing", "unwanted", "disordered"]


class PageTest(BaseModel):
    """One page. `ordered` are passages that must stand in the text one behind the other, with anything between."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: PageClass = Field(alias="class")
    html: str
    must_contain: tuple[str, ...] = ()
    must_not_contain: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A passage that a test asks for, and what is wrong with it."""

    test: str
    fault: Fault
    passage: str


@dataclass(frozen=True)
class ClassScore:
    """Tests of a class, those without any failure, and the failures."""

    tests: int
    passed: int
    failures: tuple[Failure, ...]


def read_tests(path: Path) -> list[PageTest]:
    """The tests of a file.

    Raises:
        ValueError: it is no list of tests, or two have one name.
    """
    tests = TypeAdapter(list[PageTest]).validate_python(yaml.safe_load(path.read_text()))
    if repeated := sorted({test.name for test in tests if sum(other.name == test.name for other in tests) > 1}):
        raise ValueError(f"{path}: {', '.join(repeated)} stand there twice; a name is one test")
    return tests


def failures_of(test: PageTest, text: str) -> list[Failure]:
    """What is wrong with the text of a test's page."""
    squeezed, at = _squeezed(text), 0
    found = [Failure(test.name, "missing", passage) for passage in test.must_contain if _squeezed(passage) not in squeezed]
    found += [Failure(test.name, "unwanted", passage) for passage in test.must_not_contain if _squeezed(passage) in squeezed]
    for passage in map(_squeezed, test.ordered):
        place = squeezed.find(passage, at)
        if place < 0:
            found.append(Failure(test.name, "disordered" if passage in squeezed else "missing", passage))
        else:
            at = place + len(passage)
    return found


def score(tests: Iterable[PageTest], extractor: HtmlExtractor) -> Mapping[str, ClassScore]:
    """The extractor's score by class, and of `all`."""
    failed: dict[str, list[list[Failure]]] = {"all": []}
    for test in tests:
        failures = failures_of(test, extractor(test.html))
        failed["all"].append(failures)
        failed.setdefault(test.kind, []).append(failures)
    return {kind: _class_score(rows) for kind, rows in failed.items()}


def _class_score(rows: Sequence[list[Failure]]) -> ClassScore:
    return ClassScore(len(rows), sum(not failures for failures in rows), tuple(failure for failures in rows for failure in failures))


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def main(paths: Sequence[str]) -> int:
    """Print the scores of the lineage's extractor on files of tests, and what failed."""
    scores = score([test for path in paths for test in read_tests(Path(path))], html_extractor(ExtractConfig().html))
    for failure in scores["all"].failures:
        print(f"{failure.test}: {failure.fault}: {failure.passage[:100]!r}")
    for kind in sorted(scores, key=lambda kind: (kind == "all", kind)):
        print(f"{kind:<12} {scores[kind].passed:>4} of {scores[kind].tests}")
    return int(bool(scores["all"].failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
