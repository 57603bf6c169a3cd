"""EleutherAI's lm-eval on our forward pass: the model class it asks, and a run over local files.

What lm-eval decides stays its own: prompts, examples, filters, metrics. Imported only where it is used; it is an optional extra.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from lm_eval import evaluator  # type: ignore[import-untyped]
from lm_eval.api.instance import Instance  # type: ignore[import-untyped]
from lm_eval.api.model import TemplateLM  # type: ignore[import-untyped]
from lm_eval.api.task import ConfigurableTask  # type: ignore[import-untyped]
from lm_eval.models.utils import normalize_gen_kwargs  # type: ignore[import-untyped]

from model.eval.tasks.generation import generate
from model.eval.tasks.language_model import LanguageModel
from model.eval.tasks.likelihood import score
from model.eval.tasks.requests import continuation_of, prompt_of, rolling
from ops.evaluation.samples import Choice, Grading, Kind, Sample
from ops.evaluation.tasks.items import Document, TaskItems, as_json
from ops.evaluation.tasks.task import Task

Heard = Callable[[int, int], None]
DEFAULT_NEW_TOKENS = 256  # lm-eval's own, where a task doesn't say


class HarnessModel(TemplateLM):  # type: ignore[misc]  # lm-eval is untyped
    """What lm-eval asks of a model, answered by ours."""

    def __init__(self, model: LanguageModel, batch_tokens: int, heard: Heard = lambda done, total: None) -> None:
        super().__init__()
        self._model, self._batch_tokens, self._heard = model, batch_tokens, heard

    @property
    def eot_token_id(self) -> int:
        return self._model.end_id

    @property
    def max_length(self) -> int:
        return self._model.context_tokens

    @property
    def tokenizer_name(self) -> str:
        return "seaway"

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self._model.encode(string)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        wanted = [continuation_of(self._model, context, continuation) for _, context, continuation in requests]
        scored = score(self._model, wanted, self._batch_tokens, self._heard)
        return [(-float(one.nats.sum(dtype=np.float64)), bool(one.is_likeliest.all())) for one in scored]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        texts = [rolling(self._model, request.args[0]) for request in requests]
        scored = iter(score(self._model, [window for text in texts for window in text], self._batch_tokens, self._heard))
        return [-sum(float(next(scored).nats.sum(dtype=np.float64)) for _ in text) for text in texts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Raises ValueError if a request asks for sampling: a task's number must not hang on a seed."""
        groups: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(index)
        answers: dict[int, str] = {}
        for settings, members in groups.items():
            wanted = normalize_gen_kwargs(json.loads(settings), DEFAULT_NEW_TOKENS)
            if wanted["do_sample"] or wanted.get("temperature", 0.0) > 0:
                raise ValueError(f"generation_kwargs asks for sampling ({settings}); answers are written greedily, so remove it")
            size = int(wanted["max_gen_toks"])
            prompts = [prompt_of(self._model, requests[index].args[0], size) for index in members]
            texts = generate(
                self._model, prompts, max_new_tokens=size, until=wanted["until"], batch_tokens=self._batch_tokens, heard=self._heard
            )
            answers.update(zip(members, texts, strict=True))
        return [answers[index] for index in range(len(requests))]


class LocalDocuments(list[Document]):
    """A split as lm-eval reads one: a list that names its columns."""

    @property
    def features(self) -> dict[str, None]:
        return dict.fromkeys(name for document in self for name in document)


def grade(
    model: LanguageModel, items: TaskItems, *, limit: int | None, batch_tokens: int, heard: Heard = lambda done, total: None
) -> list[Sample]:
    """Have lm-eval grade the first `limit` items of a task, all if None; a sample for each item and filter."""
    task = harness_task(items)
    found = evaluator.evaluate(
        HarnessModel(model, batch_tokens, heard),
        {items.task.task: task},
        limit=limit,
        bootstrap_iters=0,  # intervals are ours: Wilson's, over the items that were set out for
        log_samples=True,
    )
    rows = found["samples"][items.task.task]
    return [_sample(items.task, items.ids[row["doc_id"]], row) for row in rows]


def harness_task(items: TaskItems) -> ConfigurableTask:
    """lm-eval's task of this file, with the documents as we read them instead of a data set from a hub."""
    task = items.task
    splits = {task.test_split: LocalDocuments(items.documents)}
    if task.fewshot_split and items.examples:
        splits["examples"] = LocalDocuments(items.examples)
    config: dict[str, Any] = task.model_dump(
        mode="json", exclude={"dataset_path", "dataset_kwargs", "metadata", "fewshot_config", "generation_kwargs"}
    )
    metrics = [_only_what_is_said(metric.model_dump(mode="json")) for metric in task.metric_list]
    config |= {"custom_dataset": lambda **_: splits, "metric_list": metrics, "fewshot_split": "examples" if "examples" in splits else None}
    config["filter_list"] = [one.model_dump(mode="json") for one in task.filter_list] or None
    if "examples" in splits:
        config["fewshot_config"] = {"sampler": task.fewshot_config.sampler}
    if task.output_type == "generate_until":
        config["generation_kwargs"] = {**task.generation.model_dump(mode="json"), "until": list(task.generation.until)}
    return ConfigurableTask(config=config)


def _only_what_is_said(metric: dict[str, Any]) -> dict[str, Any]:
    """lm-eval hands every further key to the metric's function, and only one of them takes any."""
    return {key: value for key, value in metric.items() if value or key in ("aggregation", "higher_is_better")}


def _sample(task: Task, doc_id: str, row: dict[str, Any]) -> Sample:
    is_choice = task.output_type == "multiple_choice"
    kind: Kind = "multiple_choice" if is_choice else "generation"
    metrics = {name: float(row[name]) for name in row["metrics"] if isinstance(row[name], int | float | np.number)}
    headline, choices = task.headline, _choices(task, row) if is_choice else None
    output, extracted = _answer(task, row)
    score = metrics.get(headline)  # a perplexity is a ratio of sums, so no sample has one
    return Sample(
        task=task.task,
        doc_id=doc_id,
        filter=row["filter"],
        kind=kind,
        prompt=row["arguments"][0][0],
        choices=choices,
        model_choice=None if choices is None else _chosen(headline, choices),
        gold_choice=None if choices is None else _gold(row["target"], choices),
        output=output,
        extracted=extracted,
        grading=None if score is None else Grading("loglik" if is_choice else "exact_match", headline, score, score > 0),
        metrics=metrics,
        doc=as_json(row["doc"]),
    )


def _choices(task: Task, row: dict[str, Any]) -> tuple[Choice, ...]:
    """lm-eval keeps what was scored, delimiter included, and not what was to choose from."""
    said = zip(row["arguments"], row["filtered_resps"], strict=True)
    return tuple(Choice(text.removeprefix(task.target_delimiter), min(0.0, nats), bool(greedy)) for (_, text), (nats, greedy) in said)


def _chosen(headline: str, choices: Sequence[Choice]) -> int:
    """The choice that the headline's rule takes; lm-eval says whether it was right and not which it was."""
    match headline:
        case "acc_norm":
            lengths = [len(choice.text) for choice in choices]
        case "acc_bytes":
            lengths = [len(choice.text.encode()) for choice in choices]
        case _:
            lengths = [1] * len(choices)
    return int(np.argmax([choice.loglik / length for choice, length in zip(choices, lengths, strict=True)]))


def _gold(target: Any, choices: Sequence[Choice]) -> int:
    return int(target) if not isinstance(target, str) or target.isdigit() else [choice.text for choice in choices].index(target)


def _answer(task: Task, row: dict[str, Any]) -> tuple[str | None, str | None]:
    """What was written and what was taken from it; nothing where the model only scored."""
    if task.output_type != "generate_until":
        return None, None
    return str(row["resps"][0][0]), str(row["filtered_resps"][0])
