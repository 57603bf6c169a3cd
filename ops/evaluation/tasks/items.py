"""The items of a task: read from local files, checked, and turned into what a model is asked.

Records end at LF and nowhere else. Text with an unpaired surrogate is no UTF-8, so no tokenizer and no column can hold it: it is
escaped as it is read (`infra.archive.records`), and `unescape` gives it back.
"""

import ast
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.archive.records import escape
from ops.decontaminate.evaluations import EvaluationError, items_of
from ops.evaluation.tasks.task import Task, TaskError
from ops.evaluation.tasks.templates import TemplateError, columns_of, filled_in

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """One item of a task, as a model is asked.

    Attributes:
        context: what stands before the answer: description, examples, and the item without its answer.
        choices: the answers to choose from; empty unless the task is multiple choice.
        gold: index of the right choice, or the right answer's text.
        document: the item as it was read, escaped.
    """

    doc_id: str
    context: str
    choices: tuple[str, ...]
    gold: int | str
    document: Document


class TaskItems:
    """A task beside its documents."""

    def __init__(self, task: Task, folder: Path) -> None:
        """
        Args:
            folder: of the task file; its paths are relative to it.

        Raises:
            TaskError: names the file and the field: a missing or unreadable file, no item, a missing column, an id twice.
        """
        self.task, self.folder = task, folder
        self.documents = self._read(task.test_split)
        self.examples = self._read(task.fewshot_split)[: task.num_fewshot] if task.fewshot_split and task.num_fewshot else []
        if len(self.examples) < task.num_fewshot:
            raise TaskError(
                f"{self._names(task.fewshot_split)}: {len(self.examples)} examples and num_fewshot is {task.num_fewshot}; lower it"
            )
        self.ids = self._ids()

    @property
    def fingerprint(self) -> str:
        """16 hex over the contents of every file that the task reads; paths don't enter."""
        digest = hashlib.sha256()
        for split in sorted({self.task.test_split, self.task.fewshot_split or self.task.test_split}):
            for path in self.files(split):
                digest.update(f"{split}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()[:16]

    def files(self, split: str) -> list[Path]:
        named = self.task.dataset_kwargs.data_files[split]
        return [self.folder / name for name in ((named,) if isinstance(named, str) else named)]

    def items(self, limit: int | None = None) -> Iterator[Item]:
        """The items in the order of the files, at most `limit`.

        Raises:
            TaskError: a template can't be filled in, or the right answer isn't among the choices.
        """
        turns = [self._turn(example) for example in self.examples]
        for doc_id, document in zip(self.ids, self.documents[:limit], strict=False):
            yield self._item(doc_id, document, turns)

    def _item(self, doc_id: str, document: Document, turns: Sequence[str]) -> Item:
        task = self.task
        where = f"{self._names(task.test_split)}, item {doc_id if task.id_field else int(doc_id) + 1}"  # counted as lines are
        question = str(self._filled(task.doc_to_text, document, "doc_to_text", where))
        description = str(self._filled(task.description, document, "description", where)) if task.description else ""
        choices = self._choices(document, where)
        gold = self._gold(document, choices, where)
        return Item(doc_id, description + "".join(turns) + question, choices, gold, document)

    def _turn(self, example: Document) -> str:
        """An example with its answer, as it stands before an item."""
        task, where = self.task, f"{self._names(self.task.fewshot_split)}, an example"
        question = str(self._filled(task.doc_to_text, example, "doc_to_text", where))
        choices = self._choices(example, where)
        gold = self._gold(example, choices, where)
        answer = choices[gold] if isinstance(gold, int) and choices else str(gold)
        return f"{question}{task.target_delimiter}{answer}{task.fewshot_delimiter}" if answer else question

    def _choices(self, document: Document, where: str) -> tuple[str, ...]:
        spec = self.task.doc_to_choice
        if spec is None:
            return ()
        found = spec if isinstance(spec, tuple) else self._filled(spec, document, "doc_to_choice", where)
        if isinstance(found, str):
            try:
                found = ast.literal_eval(found)
            except (ValueError, SyntaxError):
                raise TaskError(f"{where}: doc_to_choice gives {found[:60]!r}, no list; write a column that holds one") from None
        if not isinstance(found, list | tuple) or len(found) < 2 or not all(isinstance(choice, str) and choice for choice in found):
            raise TaskError(f"{where}: doc_to_choice gives {str(found)[:60]!r}; it must be two texts or more, none of them empty")
        return tuple(found)

    def _gold(self, document: Document, choices: tuple[str, ...], where: str) -> int | str:
        found = self._filled(self.task.doc_to_target, document, "doc_to_target", where)
        if not choices:
            return found if isinstance(found, str) else str(found)
        if isinstance(found, str):
            found = int(found) if found.isdigit() else choices.index(found) if found in choices else found
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < len(choices):
            return found
        raise TaskError(f"{where}: doc_to_target gives {found!r}, which is none of its {len(choices)} choices (from 0) and not one's text")

    def _filled(self, template: str, document: Document, field: str, where: str) -> Any:
        """The column of this name, or the template over all columns."""
        if template in document:
            return document[template]
        try:
            return filled_in(template, document)
        except TemplateError as error:
            raise TaskError(f"{where}: {field}: {error}; give the column or correct the field") from None

    def _read(self, split: str | None) -> list[Document]:
        assert split is not None
        documents: list[Document] = []
        for path in self.files(split):
            if not path.is_file():
                raise TaskError(f"{path}: no such file, and dataset_kwargs.data_files.{split} names it; correct the path")
            documents += self._documents(path)
        if not documents:
            raise TaskError(f"{self._names(split)}: no item, and dataset_kwargs.data_files.{split} names it; a task needs one")
        return documents

    def _documents(self, path: Path) -> Iterator[Document]:
        number = 0
        try:
            for number, found in enumerate(items_of(path), 1):
                if not isinstance(found, Mapping):
                    kind = "null" if found is None else f"a {type(found).__name__}"
                    raise TaskError(f"{path}, item {number}: {kind}, and items are objects; correct the file")
                document = {str(key): escaped(value) for key, value in found.items()}
                self._require_columns(document, f"{path}, item {number}")
                yield document
        except EvaluationError as error:
            raise TaskError(str(error)) from None
        except (OSError, gzip.BadGzipFile, UnicodeDecodeError, EOFError) as error:
            raise TaskError(f"{path}: can't be read behind item {number} ({error}); repair the file") from None

    def _require_columns(self, document: Document, where: str) -> None:
        present = frozenset(document)
        for field, template in self.task.templates().items():
            if missing := sorted(columns_of(template, present) - present):
                raise TaskError(
                    f"{where}: column {missing[0]!r} is missing, and {field} reads it; the columns are {', '.join(sorted(present))}"
                )
        if self.task.id_field is not None and self.task.id_field not in present:
            raise TaskError(f"{where}: column {self.task.id_field!r} is missing, and metadata.id_field names it; give every item one")

    def _ids(self) -> tuple[str, ...]:
        field = self.task.id_field
        if field is None:
            return tuple(str(number) for number in range(len(self.documents)))
        ids, seen = tuple(str(document[field]) for document in self.documents), set[str]()
        for doc_id in ids:
            if doc_id in seen:
                raise TaskError(
                    f"{self._names(self.task.test_split)}: {field} = {doc_id!r} occurs twice; ids identify items, so correct one"
                )
            seen.add(doc_id)
        return ids

    def _names(self, split: str | None) -> str:
        return ", ".join(str(path) for path in self.files(split or self.task.test_split))


def escaped(value: Any) -> Any:
    """A JSON value with every text in it as one that is UTF-8."""
    match value:
        case str():
            return escape(value)
        case list():
            return [escaped(item) for item in value]
        case dict():
            return {escape(key): escaped(item) for key, item in value.items()}
        case _:
            return value


def as_json(document: Document) -> str:
    """A document as JSON text in ASCII: no reader can take a part of it for the end of a line."""
    return json.dumps(document, ensure_ascii=True, sort_keys=True)
