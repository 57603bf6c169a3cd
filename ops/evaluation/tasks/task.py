"""A task as one YAML file in the format of EleutherAI's lm-eval, restricted to what two engines grade alike.

The same file is read by lm-eval (`model.eval.harness`) and by the native scorer (`model.eval.native`). It names local files only:
nothing is fetched from a hub, and nothing in it is code.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ops.evaluation.tasks.templates import TemplateError, require_template
from ops.evaluation.yaml_file import YamlFileError, read_yaml

OutputType = Literal["multiple_choice", "generate_until", "loglikelihood", "loglikelihood_rolling"]
MetricName = Literal["acc", "acc_norm", "acc_bytes", "exact_match", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"]
METRICS: Mapping[OutputType, tuple[MetricName, ...]] = {
    "multiple_choice": ("acc", "acc_norm", "acc_bytes", "exact_match"),
    "generate_until": ("exact_match",),
    "loglikelihood": ("acc", "perplexity"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
}
HEADLINE: tuple[MetricName, ...] = ("exact_match", "acc_norm", "acc")  # which of a task's metrics decides whether an item passed
ID_FIELD = "id_field"  # of `metadata`: the column that identifies an item


class TaskError(ValueError):
    """A task that can't be run as it is; the message names file and field, and says what to do."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression ({error}); correct it") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataFiles(_Part):
    """`dataset_kwargs`: split -> files, relative to the task file. JSON Lines, JSON or CSV, plain or .gz."""

    data_files: dict[str, str | tuple[str, ...]] = Field(min_length=1)


class Metric(_Part):
    metric: MetricName
    aggregation: str = "mean"
    higher_is_better: bool = True
    ignore_case: bool = False  # exact_match only, like the two below
    ignore_punctuation: bool = False
    regexes_to_ignore: tuple[Pattern, ...] = ()


class RegexStep(_Part):
    """The n-th match of a pattern, without surrounding space, or the fallback."""

    function: Literal["regex"]
    regex_pattern: Pattern
    group_select: int = 0
    fallback: str = "[invalid]"


class TakeFirst(_Part):
    """The first of several answers to one item; there is one."""

    function: Literal["take_first"]


class AnswerFilter(_Part):
    """How an answer is extracted. Each filter grades all items anew, so its name is part of a sample's key."""

    name: str = Field(min_length=1)
    filter: tuple[Annotated[RegexStep | TakeFirst, Field(discriminator="function")], ...] = Field(min_length=1)


class Fewshot(_Part):
    """Which examples stand before an item: the first ones of the split. Random ones would hang on the order of requests."""

    sampler: Literal["first_n"] = "first_n"


class Generation(_Part):
    """How an answer is written. Greedily: a task's number must not hang on a seed."""

    until: tuple[str, ...] = ()
    max_gen_toks: int = Field(default=256, ge=1)
    do_sample: Literal[False] = False
    temperature: float = Field(default=0.0, ge=0, le=0)


class Task(_Part):
    """One benchmark. Field names and meanings are those of lm-eval's task files.

    `doc_to_text`, `doc_to_target` and `doc_to_choice` are a column's name or a Jinja template over an item's columns.
    """

    task: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    output_type: OutputType
    dataset_path: Literal["json"] = "json"
    dataset_kwargs: DataFiles
    test_split: str = "test"
    fewshot_split: str | None = None
    num_fewshot: int = Field(default=0, ge=0)
    fewshot_config: Fewshot = Fewshot()
    description: str = ""
    doc_to_text: str
    doc_to_target: str
    doc_to_choice: str | tuple[str, ...] | None = None
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    generation_kwargs: Generation | None = None
    filter_list: tuple[AnswerFilter, ...] = ()
    metric_list: tuple[Metric, ...] = Field(min_length=1)
    metadata: dict[str, Any] = {}

    @model_validator(mode="after")
    def _splits_have_files(self) -> Self:
        files = self.dataset_kwargs.data_files
        for name in ("test_split", "fewshot_split"):
            split = getattr(self, name)
            if split is not None and split not in files:
                raise ValueError(f"{name} is {split!r} and dataset_kwargs.data_files has {', '.join(sorted(files))}; name one of them")
        if self.num_fewshot and self.fewshot_split is None:
            raise ValueError(f"num_fewshot is {self.num_fewshot} and fewshot_split is missing; say which split the examples are from")
        return self

    @model_validator(mode="after")
    def _parts_fit_the_output_type(self) -> Self:
        kind = self.output_type
        if (kind == "multiple_choice") != (self.doc_to_choice is not None):
            raise ValueError(f"doc_to_choice belongs to multiple_choice and to nothing else, and output_type is {kind}")
        if kind != "generate_until" and (self.filter_list or self.generation_kwargs):
            raise ValueError(f"filter_list and generation_kwargs belong to generate_until, and output_type is {kind}; remove them")
        for metric in self.metric_list:
            if metric.metric not in METRICS[kind]:
                raise ValueError(f"metric_list: {metric.metric} is no metric of {kind}; choose among {', '.join(METRICS[kind])}")
        metrics, filters = [one.metric for one in self.metric_list], [one.name for one in self.filter_list]
        names: dict[str, list[str]] = {"metric_list": [*metrics], "filter_list": filters}
        for name, found in names.items():
            if repeated := sorted({item for item in found if found.count(item) > 1}):
                raise ValueError(f"{name} names {repeated[0]} twice; its samples would have one key")
        return self

    @property
    def headline(self) -> MetricName:
        """The metric that decides whether an item passed; the task's first one where none of the usual is there."""
        named = [metric.metric for metric in self.metric_list]
        return next((metric for metric in HEADLINE if metric in named), named[0])

    @property
    def filters(self) -> tuple[AnswerFilter, ...]:
        """The filters, `none` where the task has none: lm-eval's name for an answer taken as it is."""
        return self.filter_list or (AnswerFilter(name="none", filter=(TakeFirst(function="take_first"),)),)

    @property
    def headline_filter(self) -> str:
        """The filter whose rows are counted: a flexible one is preferred, since a strict one also grades the format."""
        names = [one.name for one in self.filters]
        return next((name for name in names if name.startswith("flexible")), names[0])

    @property
    def generation(self) -> Generation:
        return self.generation_kwargs or Generation(until=(self.fewshot_delimiter,))

    @property
    def id_field(self) -> str | None:
        """The column whose value identifies an item; None: its number in the files, from 0."""
        return self.metadata.get(ID_FIELD)

    def templates(self) -> dict[str, str]:
        """The fields that read columns, by name."""
        choice = self.doc_to_choice if isinstance(self.doc_to_choice, str) else None
        found = {
            "doc_to_text": self.doc_to_text,
            "doc_to_target": self.doc_to_target,
            "doc_to_choice": choice,
            "description": self.description,
        }
        return {name: template for name, template in found.items() if template}


def load_task(path: Path) -> Task:
    """Read a task file.

    Raises:
        TaskError: it is missing, no YAML, or not such a task.
    """
    try:
        task = read_yaml(Task, path, "task")
    except YamlFileError as error:
        raise TaskError(str(error)) from None
    for name, template in task.templates().items():
        try:
            require_template(template)
        except TemplateError as error:
            raise TaskError(f"{path}: {name}: no Jinja template ({error}); correct it") from None
    return task
