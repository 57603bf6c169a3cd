"""From what a model said to a number for each item. The rules are lm-eval's, and a test holds the two together item by item."""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ops.evaluation.samples import Choice, Grading, Sample
from ops.evaluation.tasks.items import Item, as_json
from ops.evaluation.tasks.task import AnswerFilter, Metric, RegexStep, Task

PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Likelihood:
    """What a model thinks of one continuation.

    Attributes:
        nats: natural logarithm of its probability; at most 0.
        is_greedy: whether it is, token by token, the likeliest one.
    """

    nats: float
    is_greedy: bool


def grade_choice(task: Task, item: Item, answers: Sequence[Likelihood]) -> Sample:
    """A multiple-choice item. Among equally likely choices the first counts as chosen."""
    assert isinstance(item.gold, int)
    likelihoods = np.array([answer.nats for answer in answers])
    lengths = {
        "acc": np.ones(len(answers)),
        "acc_norm": np.array([float(len(choice)) for choice in item.choices]),
        "acc_bytes": np.array([float(len(choice.encode())) for choice in item.choices]),
    }
    picks = {name: int(np.argmax(likelihoods / length)) for name, length in lengths.items()}
    metrics: dict[str, float] = {
        one.metric: float(answers[item.gold].is_greedy) if one.metric == "exact_match" else float(picks[one.metric] == item.gold)
        for one in task.metric_list
    }
    headline = task.headline
    choices = zip(item.choices, answers, strict=True)
    return Sample(
        task=task.task,
        doc_id=item.doc_id,
        kind="multiple_choice",
        prompt=item.context,
        choices=tuple(Choice(text, min(0.0, answer.nats), answer.is_greedy) for text, answer in choices),
        model_choice=picks.get(headline, picks["acc"]),
        gold_choice=item.gold,
        grading=Grading("loglik", headline, metrics[headline], metrics[headline] > 0),
        metrics=metrics,
        doc=as_json(item.document),
    )


def grade_answer(task: Task, item: Item, answer: str) -> list[Sample]:
    """A generated answer, once for each of the task's filters."""
    samples = []
    for one in task.filters:
        extracted = extract(one, answer)
        metrics: dict[str, float] = {metric.metric: float(exact_match(metric, extracted, str(item.gold))) for metric in task.metric_list}
        headline = task.headline
        samples.append(
            Sample(
                task=task.task,
                doc_id=item.doc_id,
                filter=one.name,
                kind="generation",
                prompt=item.context,
                output=answer,
                extracted=extracted,
                grading=Grading("exact_match", headline, metrics[headline], metrics[headline] > 0),
                metrics=metrics,
                doc=as_json(item.document),
            )
        )
    return samples


def extract(answer_filter: AnswerFilter, answer: str) -> str:
    """What a filter makes of an answer."""
    for step in answer_filter.filter:
        if isinstance(step, RegexStep):
            answer = _nth_match(step, answer)
    return answer


def _nth_match(step: RegexStep, answer: str) -> str:
    """Of a match with several groups, the first group that isn't empty."""
    found = re.findall(step.regex_pattern, answer)
    if not found:
        return step.fallback
    match = found[step.group_select]
    if isinstance(match, tuple):
        match = next((group for group in match if group), step.fallback)
    return str(match).strip()


def exact_match(metric: Metric, answer: str, gold: str) -> bool:
    """Whether an answer is the right one, after what the metric ignores is taken out of both."""
    for pattern in metric.regexes_to_ignore:
        answer, gold = re.sub(pattern, "", answer), re.sub(pattern, "", gold)
    if metric.ignore_case:
        answer, gold = answer.lower(), gold.lower()
    if metric.ignore_punctuation:
        answer, gold = answer.translate(PUNCTUATION), gold.translate(PUNCTUATION)
    return answer == gold
