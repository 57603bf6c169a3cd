"""A lab's board after an autumn of work: several models and benchmarks, and everything that can be wrong with a result.

Numbers of the scene are made up; intervals come from the project's own statistics.
"""

import json
import random
from datetime import timedelta

from infra.dash.results import Choice, Estimate, Prediction, Result, Sample
from ops.evaluation import statistics
from ops.evaluation.statistics import Tally
from tests.infra.dash.results import NOON, InMemory, failed

HOSTILE = "<script>document.title='owned'</script>\u202egnirts\u2028next\x00 & \"quoted\" <img src=x onerror=alert(1)>"
SIZES = {"arc_challenge": 1172, "arc_easy": 2376, "gsm8k": 1319, "hellaswag": 10042}
SKILLS = {"release-7b": 0.71, "cooldown-3b": 0.58, "hero-3b": 0.55, "ablation-norm-gate": 0.5, "baseline-1b": 0.41}
HARDNESS = {"arc_challenge": -0.12, "arc_easy": 0.12, "gsm8k": -0.3, "hellaswag": 0.05}


def rated(model: str, benchmark: str, share: float, missing: float = 0.0, hours: float = 0.0, cohort: str = "2026-11-28-full") -> Result:
    attempted = SIZES[benchmark]
    scored = round(attempted * (1 - missing))
    correct = round(scored * share)
    found = statistics.estimate(Tally(attempted, scored, correct))
    return Result(
        run=f"{abs(hash_of(model + benchmark)):016x}.{cohort}",
        model=model,
        benchmark=benchmark,
        metric="exact_match · flexible-extract" if benchmark == "gsm8k" else "acc_norm",
        cohort=cohort,
        version="core-2",
        at=NOON + timedelta(hours=hours),
        status="succeeded",
        attempted=attempted,
        scored=scored,
        correct=correct,
        estimate=Estimate(found.low, found.high, found.least, found.most, found.complete_case, found.kind),
        errors={"time-out": attempted - scored} if missing else {},
        has_samples=True,
    )


def hash_of(text: str) -> int:
    return random.Random(text).getrandbits(60)


def scene() -> InMemory:
    found = [
        rated(model, benchmark, max(0.02, skill + HARDNESS[benchmark]), missing={"baseline-1b": 0.18, "hero-3b": 0.02}.get(model, 0.0))
        for model, skill in SKILLS.items()
        for benchmark in SIZES
        if (model, benchmark) not in (("ablation-norm-gate", "gsm8k"), ("baseline-1b", "hellaswag"))
    ]
    detail = "A worker was lost three times: the machine went away.\nConnectionResetError: [Errno 104] Connection reset by peer"
    found.append(failed("ablation-norm-gate", "gsm8k", run="lost.2026-11-30-night", cohort="2026-11-30-night", hours=9, detail=detail))
    doubt = "No answer could be taken from any output: a broken filter looks the same as a model that knows nothing."
    suspect = rated("cooldown-3b", "gsm8k", 0.0, hours=9, cohort="2026-11-30-night")
    found.append(Result(**{**vars(suspect), "suspicions": (doubt,)}))
    return InMemory(found, samples(), predictions())


def samples() -> list[Sample]:
    found = [_graded(number) for number in range(120)]
    found[3] = Sample(("gsm8k", "0003"), "ungraded", "generation", prompt=HOSTILE, output=HOSTILE, extracted=HOSTILE, document="{}")
    found[5] = Sample(
        ("gsm8k", "0005"),
        "failed",
        "multiple_choice",
        method="loglik",
        metric="acc_norm",
        score=0.0,
        prompt="Which of these causes the tide?\nAnswer:",
        choices=(
            Choice(" the wind", -9.41, False, False),
            Choice(" the moon", -4.02, False, True),
            Choice(" the rain", -3.87, True, False),
            Choice(f" {HOSTILE}", -14.5, False, False),
        ),
        metrics={"acc": 0.0, "acc_norm": 0.0},
        document=json.dumps({"question": "Which of these causes the tide?", "answerKey": "B"}),
    )
    return found


def _graded(number: int) -> Sample:
    is_right = number % 3 != 1
    boats, crates = 3 + number, 4 + number % 5
    answer = boats * crates if is_right else boats + crates
    return Sample(
        ("gsm8k", f"{number:04}"),
        "passed" if is_right else "failed",
        "generation",
        method="exact_match",
        metric="exact_match",
        score=float(is_right),
        reason=json.dumps({"expected": str(boats * crates), "found": str(answer), "filter": "flexible-extract"}),
        prompt=f"Question: {boats} boats come in with the tide, each with {crates} crates. How many crates are there?\nAnswer:",
        output=f" Each of the {boats} boats has {crates} crates, so there are {answer} crates.\n#### {answer}",
        extracted=str(answer),
        metrics={"exact_match": float(is_right)},
        document=json.dumps({"question": f"{boats} boats ...", "answer": f"#### {boats * crates}"}),
    )


def predictions() -> list[Prediction]:
    mark = {"tokens": 1_200_000_000, "step": 36_000}
    branch = "not the preregistered result: this is a branch that left its parent at step 30000; the prediction is about a run from scratch"
    return [
        Prediction("hero", "macro_bits_per_byte", 0.912, 0.02, 0.921, None, mark),
        Prediction("cooldown", "macro_bits_per_byte", 0.912, 0.02, 0.874, branch, {"tokens": 1_500_000_000, "step": 42_000}),
        Prediction("pilot", "macro_bits_per_byte", 1.31, 0.015, 1.352, None, {"tokens": 90_000_000, "step": 4_000}),
        Prediction("not measured yet", "macro_bits_per_byte", 0.861, 0.012, None, None, {"tokens": 6_000_000_000}),
    ]
