"""Who grades documents for a quality classifier: an oracle behind one interface, a budget, and a book of what was answered.

An oracle sees an excerpt and gives a grade from 1 to 5, or none. What it answered is written down under its name and the
excerpt, so that no answer is paid for twice, whatever dies in between.
"""

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from ops.hashing.columns import TextColumn
from ops.label.rules import score_texts

GRADES = (1, 2, 3, 4, 5)
RUBRIC_VERSION = "1"
RUBRIC = """Grade how useful the document between the tags is as an example of its own kind (an article, a manual page, a poem, \
source code, a table ...) for a language model that learns from it. Do not reward a kind or a chatty tone as such.
5: complete, correct as far as you can tell, and well made.  4: good, with small flaws.  3: usable.
2: mostly boilerplate, fragments or repetition.  1: spam, noise or unreadable.
Answer with JSON alone: {"grade": 1 to 5}"""
_GRADE = re.compile(r'"grade"\s*:\s*([1-5])\b')


class OracleError(RuntimeError):
    """The oracle can't be asked at all."""


class Oracle(Protocol):
    """Grades excerpts, each by itself. `name` says who it is, with model and rubric: another name is another opinion."""

    @property
    def name(self) -> str: ...

    def grade(self, excerpts: Sequence[str]) -> list[int | None]: ...


@dataclass(frozen=True)
class RulesOracle:
    """The rule-based score in five steps: free, on any machine, and no better than the rules."""

    name: str = "rules/1"

    def grade(self, excerpts: Sequence[str]) -> list[int | None]:
        column = TextColumn.of(pa.array(excerpts, pa.string()))
        scores = score_texts(column, np.zeros(column.rows, bool), 200_000).score
        return [min(5, 1 + int(5 * float(score))) for score in scores]


@dataclass(frozen=True)
class ChatOracle:
    """A model behind an OpenAI-compatible endpoint.

    url: up to `/v1`. key_variable: of the environment, that holds the key; none is sent where it is unset.
    """

    url: str
    model: str
    timeout_s: float = 60.0
    key_variable: str = "SEAWAY_ORACLE_KEY"

    @property
    def name(self) -> str:
        return f"chat/{self.model}/rubric-{RUBRIC_VERSION}"

    def grade(self, excerpts: Sequence[str]) -> list[int | None]:
        """One call for each excerpt; an answer without a grade is None.

        Raises:
            OracleError: the endpoint does not answer, or refuses.
        """
        return [grade_in(self._answer(excerpt)) for excerpt in excerpts]

    def _answer(self, excerpt: str) -> str:
        messages = [{"role": "system", "content": RUBRIC}, {"role": "user", "content": f"<document>\n{excerpt}\n</document>"}]
        body = json.dumps({"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 32}).encode()
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_variable):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url}/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                return str(json.load(response)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            with error:
                raise OracleError(f"{self.url}: {error.code} {error.reason}; grades so far are kept, so mend it and run again") from None
        except (OSError, ValueError, LookupError) as error:
            raise OracleError(f"{self.url}: {error!r}; grades so far are kept, so mend it and run again") from error


def grade_in(answer: str) -> int | None:
    """The grade in an answer; None without one, or with two that differ."""
    found = set(_GRADE.findall(answer))
    return int(found.pop()) if len(found) == 1 else None


@dataclass
class GradeBook:
    """Asks an oracle within a budget, and never twice the same.

    path: a file of JSON lines that is appended to, one for each answer as soon as it is there; None keeps nothing.
    budget: excerpts that may be asked about; what is in the book costs nothing.
    """

    oracle: Oracle
    path: Path | None
    budget: int
    asked: int = 0
    _known: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                try:
                    entry = json.loads(line)
                    self._known[entry["key"]] = entry["grade"]
                except (ValueError, LookupError, TypeError):
                    continue  # the last line of a process that was killed while it wrote

    def grade(self, excerpt: str) -> int | None:
        """The oracle's grade; None where it had none to give, or the budget is spent."""
        key = hashlib.sha256(f"{self.oracle.name}\0{excerpt}".encode()).hexdigest()
        if key not in self._known:
            if self.asked >= self.budget:
                return None
            self.asked += 1
            [self._known[key]] = self.oracle.grade([excerpt])
            self._write(key)
        return self._known[key]

    def _write(self, key: str) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as stream:
            stream.write(json.dumps({"key": key, "grade": self._known[key], "oracle": self.oracle.name}).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def excerpt_of(text: str, window_chars: int) -> str:
    """Beginning, middle and end of a text, or all of one that is no longer: a long preamble must not decide alone."""
    if len(text) <= 3 * window_chars:
        return text
    middle = (len(text) - window_chars) // 2
    return "\n".join((text[:window_chars], text[middle : middle + window_chars], text[-window_chars:]))
