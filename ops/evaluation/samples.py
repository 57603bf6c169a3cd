"""The sample contract: one row for each item that an evaluation graded, with everything a person needs to see why.

Rows lie in an archive (`infra.archive`). The key is (task, doc_id, trial, filter): one document is sampled several times
(trials), and one answer is graded several ways (filters: `strict-match` and `flexible-extract` of one answer are two rows).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from infra.archive.records import text_field, to_batch, to_records
from infra.archive.tables import Table

SCHEMA_VERSION = 1  # in each row; raised when an older reader would misunderstand one
NO_FILTER = "none"  # lm-eval's name for an answer that was graded as it is
KINDS = ("multiple_choice", "generation", "agentic")
Kind = Literal["multiple_choice", "generation", "agentic"]

_message = pa.struct([pa.field("role", pa.string(), nullable=False), pa.field("content", pa.string(), nullable=False)])
_choice = pa.struct(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("loglik", pa.float64(), nullable=False),
        pa.field("is_greedy", pa.bool_(), nullable=False),
    ]
)
_grading = pa.struct(
    [
        pa.field("method", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
        pa.field("passed", pa.bool_(), nullable=False),
        pa.field("detail", pa.string()),
    ]
)
SAMPLES = Table(
    "samples",
    pa.schema(
        [
            pa.field("schema_version", pa.int32(), nullable=False),
            pa.field("task", pa.string(), nullable=False),
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("trial", pa.int32(), nullable=False),
            pa.field("filter", pa.string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            text_field("prompt"),
            text_field("messages", pa.list_(pa.field("item", _message, nullable=False))),
            text_field("choices", pa.list_(pa.field("item", _choice, nullable=False))),
            pa.field("model_choice", pa.int32()),
            pa.field("gold_choice", pa.int32()),
            text_field("output"),
            text_field("extracted"),
            pa.field("grading", _grading),
            pa.field("metrics", pa.map_(pa.string(), pa.float64()), nullable=False),
            pa.field("doc", pa.string(), nullable=False),
            pa.field("trajectory", pa.string()),
        ]
    ),
    key=("task", "doc_id", "trial", "filter"),
)


class InvalidSampleError(ValueError):
    """A sample that breaks the contract; the message names its key and the field."""


@dataclass(frozen=True)
class Message:
    """One turn of a chat prompt."""

    role: str
    content: str


@dataclass(frozen=True)
class Choice:
    """One answer of a multiple-choice item.

    Attributes:
        loglik: natural logarithm of the answer's probability after the prompt.
        is_greedy: whether greedy decoding would have written it.
    """

    text: str
    loglik: float
    is_greedy: bool


@dataclass(frozen=True)
class Grading:
    """Why the item counts as right or wrong.

    Attributes:
        method: how it was judged: `loglik`, `exact_match`, `unit_tests`, `judge:{model}`.
        metric: which number of `metrics` decides.
        score: of this sample.
        passed: whether it counts as a success.
        detail: what the grader said, as JSON text.
    """

    method: str
    metric: str
    score: float
    passed: bool
    detail: str | None = None


@dataclass(frozen=True)
class Sample:
    """One graded (or attempted) item.

    Attributes:
        trial: 0 for the first.
        filter: how the answer was extracted before it was graded.
        prompt, messages: what the model saw: one of the two.
        choices, model_choice, gold_choice: of multiple-choice items; indices are resolved here, so that nobody guesses later.
        output, extracted: what the model wrote, and what the filter took from it.
        grading: None where the item was attempted and has no grade (a time-out, a crash).
        metrics: every number of this sample, by name.
        doc: the source document as JSON text, verbatim.
        trajectory: URI of what is too large for a row (`archive://blobs/...`).

    Raises:
        InvalidSampleError: names key and field.
    """

    task: str
    doc_id: str
    kind: Kind
    doc: str
    trial: int = 0
    filter: str = NO_FILTER
    prompt: str | None = None
    messages: Sequence[Message] | None = None
    choices: Sequence[Choice] | None = None
    model_choice: int | None = None
    gold_choice: int | None = None
    output: str | None = None
    extracted: str | None = None
    grading: Grading | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    trajectory: str | None = None
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        for name, wrong in _findings(self):
            key = ", ".join(f"{part}={getattr(self, part)!r}" for part in SAMPLES.key)
            raise InvalidSampleError(f"sample ({key}), field {name!r}: {wrong}")


def samples_batch(samples: Iterable[Sample]) -> pa.RecordBatch:
    """Samples as rows of `SAMPLES`."""
    return to_batch([_row(sample) for sample in samples], SAMPLES.schema)


def samples_of(batch: pa.RecordBatch) -> list[Sample]:
    """Rows of `SAMPLES` as samples, checked. Columns that came later than this version are left out.

    Raises:
        InvalidSampleError: a row breaks the contract.
    """
    known = batch.select([name for name in batch.schema.names if name in SAMPLES.schema.names])
    return [_sample(row) for row in to_records(known)]


def _row(sample: Sample) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies every leaf and takes ten times as long."""
    return {
        **vars(sample),
        "messages": None if sample.messages is None else [vars(one) for one in sample.messages],
        "choices": None if sample.choices is None else [vars(one) for one in sample.choices],
        "grading": None if sample.grading is None else vars(sample.grading),
        "metrics": dict(sample.metrics),
    }


def _sample(row: dict[str, Any]) -> Sample:
    messages, choices, grading = row.pop("messages"), row.pop("choices"), row.pop("grading")
    return Sample(
        **row,
        messages=None if messages is None else tuple(Message(**one) for one in messages),
        choices=None if choices is None else tuple(Choice(**one) for one in choices),
        grading=None if grading is None else Grading(**grading),
    )


def _findings(sample: Sample) -> Iterable[tuple[str, str]]:
    """What is wrong, as (field, sentence)."""
    for name in ("task", "doc_id", "filter"):
        if not getattr(sample, name):
            yield name, "it is empty, and part of the key; name it"
    if sample.trial < 0:
        yield "trial", "trials count from 0"
    if sample.schema_version > SCHEMA_VERSION:
        yield "schema_version", f"it is {sample.schema_version} and this reader knows {SCHEMA_VERSION}; update it"
    if sample.kind not in KINDS:
        yield "kind", f"it is {sample.kind!r}; choose one of {', '.join(KINDS)}"
    if (sample.prompt is None) == (sample.messages is None):
        yield "prompt", "give either prompt or messages, what the model saw, and not both"
    if sample.messages is not None and not sample.messages:
        yield "messages", "it has no turn; give what the model saw"
    yield from _choice_findings(sample)
    yield from _grading_findings(sample)
    if not _is_json(sample.doc):
        yield "doc", "it is no JSON text; give the source document as it was read"
    if sample.trajectory is not None and "://" not in sample.trajectory:
        yield "trajectory", f"{sample.trajectory!r} is no URI; put it in a blob and give its archive:// URI"


def _choice_findings(sample: Sample) -> Iterable[tuple[str, str]]:
    if sample.kind != "multiple_choice":
        for name in ("choices", "model_choice", "gold_choice"):
            if getattr(sample, name) is not None:
                yield name, f"only multiple-choice items have it, and this one is {sample.kind}"
        return
    if sample.choices is None or len(sample.choices) < 2:
        yield "choices", "a multiple-choice item has two or more"
        return
    for number, choice in enumerate(sample.choices):
        if math.isnan(choice.loglik) or choice.loglik > 0:
            yield "choices", f"choice {number} has log-likelihood {choice.loglik}; it is a number of at most 0"
    for name in ("model_choice", "gold_choice"):
        index = getattr(sample, name)
        if index is not None and not 0 <= index < len(sample.choices):
            yield name, f"it is {index} and there are {len(sample.choices)} choices, counted from 0"
    if sample.gold_choice is None:
        yield "gold_choice", "a multiple-choice item has a right answer; resolve its index"
    if sample.grading is not None and sample.model_choice is None:
        yield "model_choice", "the item is graded and does not say what the model chose"


def _grading_findings(sample: Sample) -> Iterable[tuple[str, str]]:
    for name, value in sample.metrics.items():
        if not math.isfinite(value):
            yield "metrics", f"{name!r} is {value}; leave out a metric that has no value"
    grading = sample.grading
    if grading is None:
        return
    if not grading.method or not grading.metric:
        yield "grading", "it names no method or no metric; a number whose origin is unknown can't be trusted"
    if not math.isfinite(grading.score):
        yield "grading", f"its score is {grading.score}; a sample without a grade has no grading"
    if grading.metric in sample.metrics and sample.metrics[grading.metric] != grading.score:
        yield "grading", f"its score is {grading.score} and metric {grading.metric!r} is {sample.metrics[grading.metric]}"
    if grading.detail is not None and not _is_json(grading.detail):
        yield "grading", "its detail is no JSON text"


def _is_json(text: str) -> bool:
    """Whether it is JSON, and UTF-8: unpaired surrogates in it must be escapes, as `json.dumps` writes them."""
    try:
        json.loads(text)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return True
