"""A sample of the fuzzer's cases, and that it notices what it is there to notice."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ops.extract.interpret import Interpreter
from ops.extract.rejects import Reason
from ops.units import MiB
from tests.ops.extract import fuzz
from tests.ops.extract.fuzz import Plan, Table, read_case
from tests.ops.extract.fuzz_cases import KINDS, Case

SAMPLE = 360


def test_damaged_files_end_as_documents_and_typed_rejects() -> None:
    plan = Plan(range(SAMPLE), data=None)
    table = Table.of(plan, fuzz.fuzz(plan))
    print(f"\n{table}")
    assert not table.failures
    assert set(table.cases) == set(KINDS)
    for kind, outcomes in table.outcomes.items():
        assert set(outcomes) <= {"document", *Reason}, kind
        assert outcomes["document"] > 0, kind
        assert outcomes.total() > outcomes["document"], kind


def test_a_number_gives_the_same_case_for_ever() -> None:
    plan = Plan(range(18), data=None)
    assert [plan.case(number) for number in plan.cases] == [Plan(range(1), data=None).case(number) for number in plan.cases]
    assert plan.case(0).data != Plan(range(1), seed=1, data=None).case(0).data


def misbehave(case: Case, interpreter: Interpreter) -> Counter[str]:
    """A reader with every fault that there may be."""
    match case.kind:
        case "warc":
            os._exit(7)
        case "warc.gz":
            while True:
                pass
        case "warc.gz, inside":
            np.ones(700 * MiB, np.uint8)
        case "warc.zst":
            raise ValueError("a reader's bug")
        case "html":
            return Counter()
    return read_case(case, interpreter)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel of Linux keeps the memory limit")
def test_crashes_stalls_greed_and_lost_records_are_noticed() -> None:
    plan = Plan(range(len(KINDS)), data=None, limit_cpu_s=0.5, memory_bytes=512 * MiB)
    ended = sorted(fuzz.fuzz(plan, read=misbehave), key=lambda one: one.number)
    failures = {fuzz.kind_of(one.number): one.failure for one in ended if one.failure is not None}
    assert len(ended) == len(KINDS), "the others are read all the same"
    assert failures["warc"] == "its worker ended with exit code 7"
    assert (failures["warc.gz"] or "").startswith("no end after 1.")
    assert failures["warc.gz, inside"] == "wants more than 512 MiB"
    assert failures["warc.zst"] == "ValueError: a reader's bug"
    assert failures["html"] == "neither a document nor a reject"
    assert len(failures) == 5
