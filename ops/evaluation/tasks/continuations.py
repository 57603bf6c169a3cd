"""A multiple-choice task made of held-out documents: which of these texts goes on after this passage?

Nobody has to download it, no model has trained on it, and its right answers are true by construction: the wrong ones are what follows
other passages of the same domain. It asks for the thread of a text, not for knowledge.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from infra.archive.records import escape
from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.evaluation.config import TaskItemsConfig
from ops.evaluation.perplexity.providers import held_out_slices
from ops.evaluation.perplexity.slices import TextDocument
from ops.evaluation.tasks.task import Task

TASK = "continuations"
TASK_FILE, ITEMS_FILE = f"{TASK}.yaml", f"{TASK}.jsonl"


class TaskItemsStats(Stats):
    """Items by domain; a domain with too few passages for one item has 0."""

    items: int
    by_domain: dict[str, int]
    choices: int


@dataclass(frozen=True)
class Passage:
    """A place in a document where a text is cut in two, at one space between two words.

    Attributes:
        document: its name; items are told apart by it and by `start`.
        start: of the context, in characters.
        continuation: whole words; it does not begin or end in space.
    """

    document: str
    start: int
    context: str
    continuation: str


@program(version="1")
def make_continuations(config: TaskItemsConfig, store: Artifact, tokenizer: Artifact, out: Writer) -> TaskItemsStats:
    """Write the task file and its items.

    Args:
        store: its held-out documents.
        tokenizer: the store's.
        out: gets `continuations.yaml`, in the format of `ops.evaluation.tasks.task`, and `continuations.jsonl`.

    Raises:
        ValueError: no domain has passages enough for one item.
    """
    by_domain: dict[str, list[dict[str, object]]] = {}
    for found in held_out_slices(store, tokenizer):
        domain = found.key.partition("/")[2]
        by_domain[domain] = list(items_of_domain(config, domain, found.documents))
    items = [item for domain in sorted(by_domain) for item in by_domain[domain]]
    if not items:
        raise ValueError(
            f"{store.url}: no held-out domain has {config.choices} passages of {config.context_characters} characters; raise "
            "held_out_rate where the sources are normalised, or lower programs.task_items.context_characters"
        )
    with out.open(TASK_FILE) as stream:
        stream.write(yaml.safe_dump(task_of(config).model_dump(mode="json", exclude_defaults=True), sort_keys=False).encode())
    with out.open(ITEMS_FILE) as stream:
        stream.writelines(json.dumps(item, ensure_ascii=True).encode() + b"\n" for item in items)
    return TaskItemsStats(items=len(items), by_domain={key: len(found) for key, found in by_domain.items()}, choices=config.choices)


def task_of(config: TaskItemsConfig) -> Task:
    """The task as lm-eval reads it too."""
    return Task.model_validate(
        {
            "task": TASK,
            "output_type": "multiple_choice",
            "dataset_kwargs": {"data_files": {"test": ITEMS_FILE}},
            "doc_to_text": "context",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
            "metadata": {"id_field": "id", "choices": config.choices},
        }
    )


def items_of_domain(config: TaskItemsConfig, domain: str, documents: Sequence[TextDocument]) -> Iterator[dict[str, object]]:
    """Items of one domain, from as many documents as there are before a second one from any.

    What is drawn hangs on the seed, the domain and its documents alone: another domain moves nothing here.
    """
    rng = random.Random(f"{config.seed}\0{domain}")
    cut = [list(passages(config, document)) for document in documents]
    for found in cut:
        rng.shuffle(found)
    rng.shuffle(cut)
    turns = [found[turn] for turn in range(max(map(len, cut), default=0)) for found in cut if turn < len(found)]
    distinct = {passage.continuation: passage for passage in reversed(turns)}  # a licence's words follow many a passage
    pool = sorted(distinct)
    if len(pool) < config.choices:
        return
    for passage in [one for one in turns if distinct[one.continuation] is one][: config.items_per_domain]:
        others = rng.sample([text for text in pool if text != passage.continuation], config.choices - 1)
        gold = rng.randrange(config.choices)
        yield {
            "id": f"{passage.document}@{passage.start}",
            "domain": domain,
            "context": passage.context,
            "choices": [*others[:gold], passage.continuation, *others[gold:]],
            "gold": gold,
        }


def passages(config: TaskItemsConfig, document: TextDocument) -> Iterator[Passage]:
    """Passages side by side, none overlapping another; none where a text has no single space to be cut at."""
    text, start = escape(document.text), 0
    while (space := _single_space(text, start + config.context_characters)) is not None:
        end = space + 1 + config.choice_characters
        if end > len(text):
            return
        continuation = text[space + 1 : end]
        if end < len(text) and not text[end].isspace():
            continuation = continuation.rsplit(maxsplit=1)[0]  # its last word is cut
        context, behind = text[start:space], space + 1 + len(continuation)
        if len(continuation.strip()) * 2 >= config.choice_characters and context.strip():
            yield Passage(document.name, start, context, continuation.strip())
        start = behind + len(text[behind:]) - len(text[behind:].lstrip())  # at a word


def _single_space(text: str, first: int) -> int | None:
    """The first place from `first` on of a space between two characters that are none."""
    space = text.find(" ", first)
    while space != -1:
        if space + 1 < len(text) and not text[space - 1].isspace() and not text[space + 1].isspace():
            return space
        space = text.find(" ", space + 1)
    return None
