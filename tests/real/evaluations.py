"""The evaluation sets of the real data, and ways in which their items leak."""

import random
import re
import textwrap
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache

from ops.decontaminate.config import EvaluationSet
from ops.decontaminate.evaluations import files_of, items_of, texts_of
from tests.real.real_data import REAL_DATA

# name: folder, glob, questions, answers, code. Arithmetic without words and bracket puzzles have no words to find.
_SETS: Mapping[str, tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "arc": ("arc", "*.jsonl", ("query",), ("choices",), ()),
    "boolq": ("boolq", "*.jsonl.gz", ("query",), (), ()),
    "commonsense_qa": ("commonsense_qa", "*.jsonl", ("query",), (), ()),
    "concepts": ("bigbench_misc", "bigbench_conceptual_combinations.jsonl", ("query",), (), ()),
    "copa": ("copa", "*.jsonl", ("query",), ("choices",), ()),
    "gsm8k": ("gsm8k", "*.jsonl", ("question",), ("answer",), ()),
    "hellaswag": ("hellaswag", "*.jsonl.gz", ("doc.query",), ("doc.choices",), ()),
    "humaneval": ("humaneval", "HumanEval.jsonl.gz", (), (), ("prompt", "canonical_solution")),
    "humaneval_cpp": ("humaneval", "processed_human_eval_cpp.jsonl", (), (), ("prompt", "canonical_solution")),
    "humaneval_js": ("humaneval", "processed_human_eval_js.jsonl", (), (), ("prompt", "canonical_solution")),
    "ifeval": ("ifeval", "*.jsonl", ("prompt",), (), ()),
    "lambada": ("lambada", "*.jsonl.gz", ("context",), (), ()),
    "mbpp": ("mbpp", "*.jsonl", ("text",), (), ("code",)),
    "mmlu": ("mmlu", "*.jsonl", ("question",), ("choices",), ()),
    "openbookqa": ("openbookqa", "*.jsonl", ("query",), ("choices",), ()),
    "piqa": ("piqa", "*.jsonl", ("query",), ("choices",), ()),
    "strategyqa": ("bigbench_misc", "bigbench_strategy_qa.jsonl", ("query",), (), ()),
    "svamp": ("symbolic", "svamp.jsonl", ("context",), (), ()),
    "truthfulqa": ("truthfulqa", "*.csv", ("Question",), ("Best Answer",), ()),
    "winogrande": ("winogrande", "*.jsonl", ("context_options",), (), ()),
    "xquad": ("xquad", "*.json*", ("data.paragraphs.context", "data.paragraphs.qas.question"), (), ()),
}


LETTERED = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")  # a word with a letter


@cache
def evaluations() -> tuple[EvaluationSet, ...]:
    """All sets."""
    return tuple(
        EvaluationSet(name=name, root=str(REAL_DATA / "evals" / folder), glob=glob, fields=fields, answers=answers, code=code)
        for name, (folder, glob, fields, answers, code) in _SETS.items()
    )


@cache
def questions_and_programs(evaluation: EvaluationSet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Distinct questions, and whole programs, with at least three words that have a letter."""
    questions: set[str] = set()
    programs: set[str] = set()
    for path in files_of(evaluation):
        for item in items_of(path):
            questions.update(text for name in evaluation.fields for text in texts_of(item, name))
            programs.add("".join(text for name in evaluation.code for text in texts_of(item, name)))
    asked, written = (sorted(text for text in found if len(LETTERED.findall(text)) >= 3) for found in (questions, programs))
    return tuple(asked), tuple(written)


def items(evaluation: EvaluationSet, count: int) -> list[str]:
    """A sample of questions and programs."""
    questions, programs = questions_and_programs(evaluation)
    distinct = sorted({*questions, *programs})
    return random.Random(evaluation.name).sample(distinct, min(count, len(distinct)))


def short_questions(words: int, count: int) -> list[tuple[EvaluationSet, str]]:
    """A sample of the questions of all sets with exactly so many words. (Programs of twelve words are everybody's: not guarded.)"""
    found = [(evaluation, item) for evaluation in evaluations() for item in questions_and_programs(evaluation)[0]]
    exact = [(evaluation, item) for evaluation, item in found if len(re.findall(r"[^\W_]+", item)) == words]
    return random.Random(words).sample(exact, min(count, len(exact)))


def _marked_up(text: str) -> str:
    words = text.split(" ")
    return "<p>" + " ".join(f"<b>{word}</b>" if n % 7 == 3 and "<" not in word else word for n, word in enumerate(words)) + "</p>"


VERBATIM: Mapping[str, Callable[[str], str]] = {"verbatim": str}
RE_WRAPPED: Mapping[str, Callable[[str], str]] = {
    "40 columns": lambda text: textwrap.fill(text, 40),
    "one line": lambda text: " ".join(text.split()),
    "a word a line": lambda text: "\n".join(text.split()),
    "upper case": str.upper,
    "without punctuation": lambda text: "".join(" " if unicodedata.category(c)[0] in "PS" else c for c in text),
    "wide spaces": lambda text: text.replace(" ", "  \t"),
    "HTML": _marked_up,
    "quoted Markdown": lambda text: "\n".join(f"> *{line}*" for line in textwrap.wrap(text, 60)),
}
