"""The native scorer: multiple choice and generation without a harness, for use inside a training loop and as lm-eval's second opinion."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from model.eval.tasks.generation import generate
from model.eval.tasks.language_model import LanguageModel
from model.eval.tasks.likelihood import score
from model.eval.tasks.requests import continuation_of, encode_pair, prompt_of
from ops.evaluation.samples import Sample
from ops.evaluation.tasks.grading import Likelihood, grade_answer, grade_choice
from ops.evaluation.tasks.items import Item, TaskItems
from ops.evaluation.tasks.task import Task, TaskError

Heard = Callable[[int, int], None]


def likelihoods(
    model: LanguageModel, pairs: Sequence[tuple[str, str]], batch_tokens: int, heard: Heard = lambda done, total: None
) -> list[Likelihood]:
    """What the model thinks of each (context, continuation)."""
    requests = [continuation_of(model, *encode_pair(model, context, continuation)) for context, continuation in pairs]
    scored = score(model, requests, batch_tokens, heard)
    return [Likelihood(-float(one.nats.sum(dtype="float64")), bool(one.is_likeliest.all())) for one in scored]


def grade(
    model: LanguageModel, items: TaskItems, *, limit: int | None, batch_tokens: int, heard: Heard = lambda done, total: None
) -> list[Sample]:
    """Grade the first `limit` items of a task, all if None; a sample for each item and filter, in the order of the items.

    Raises:
        TaskError: the task is of a kind that only lm-eval runs.
    """
    task, chosen = items.task, list(items.items(limit))
    match task.output_type:
        case "multiple_choice":
            return list(_choices(model, task, chosen, batch_tokens, heard))
        case "generate_until":
            return list(_answers(model, task, chosen, batch_tokens, heard))
    raise TaskError(f"task {task.task}: output_type {task.output_type} is graded by lm-eval alone; choose engine: lm_eval")


def _choices(model: LanguageModel, task: Task, items: Sequence[Item], batch_tokens: int, heard: Heard) -> Iterator[Sample]:
    pairs = [(item.context, f"{task.target_delimiter}{choice}") for item in items for choice in item.choices]
    found = likelihoods(model, pairs, batch_tokens, heard)
    ends = accumulate((len(item.choices) for item in items), initial=0)
    for item, (first, last) in zip(items, pairwise(ends), strict=True):
        yield grade_choice(task, item, found[first:last])


def _answers(model: LanguageModel, task: Task, items: Sequence[Item], batch_tokens: int, heard: Heard) -> Iterator[Sample]:
    asked = task.generation
    prompts = [prompt_of(model, item.context, asked.max_gen_toks) for item in items]
    answers = generate(model, prompts, max_new_tokens=asked.max_gen_toks, until=asked.until, batch_tokens=batch_tokens, heard=heard)
    for item, answer in zip(items, answers, strict=True):
        yield from grade_answer(task, item, answer)
