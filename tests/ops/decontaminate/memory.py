"""`python -m tests.ops.decontaminate.memory [--cap-mib 1024] [CASE ...]`: contamination and rules under the caps of
`tests.ops.dataflow.memory`, on its inputs: `flags:plain-640` flags 640 MiB of documents. Prints peak memory, CPU and digest."""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from infra.artifacts.artifact import Artifact
from ops.dataflow.config import Execution
from ops.decontaminate.config import ContaminationConfig, EvaluationNgramsConfig
from ops.units import MiB
from tests.builders import run_program
from tests.ops.dataflow.memory import peak_kib, under_cap
from tests.ops.dataflow.memory_inputs import LINES, normalized
from tests.ops.decontaminate.items import evaluation_set, prose

CASES = [f"{stage}:{given}" for stage in ("flags", "rules") for given in ("plain-64", "plain-640", "long-500MB", "tiny-million", "spaces")]


def index(folder: Path) -> Artifact:
    """Ten thousand questions that occur nowhere, and some of the lines that the documents are made of."""
    from ops.decontaminate.index import index_evaluations

    if not (folder / "index" / ".artifact.json").exists():
        questions = [prose(n, 40) for n in range(10_000)] + LINES[::500]
        config = EvaluationNgramsConfig(evaluations=(evaluation_set(folder / "quiz", "quiz", questions),))
        run_program(index_evaluations, config, folder / "index", normalized={})
    return Artifact.open_at(str(folder / "index"))


def run_case(case: str, folder: Path, directory: Path, execution: Execution) -> str:
    """Run one stage; its digest."""
    stage, _, given = case.partition(":")
    if stage == "flags":
        from ops.decontaminate.flag import flag_contamination

        config, guard = ContaminationConfig(execution=execution), index(folder)
        return run_program(flag_contamination, config, directory, normalized=normalized(folder, given), evaluation_ngrams=guard).digest
    if stage == "rules":
        from ops.rules.config import RulesConfig
        from ops.rules.labels import label_rules

        return run_program(label_rules, RulesConfig(execution=execution), directory, normalized=normalized(folder, given)).digest
    raise ValueError(f"no case {case}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Contamination and rules under a memory cap.")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--cap-mib", type=int, default=1024, help="of the whole process tree")
    parser.add_argument("--memory-mib", type=int, default=1024, help="what the stage is told a worker has")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "seaway-memory")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        execution = Execution(workers=options.workers, memory_bytes=options.memory_mib * MiB)
        with tempfile.TemporaryDirectory(dir=options.folder) as directory:
            began_s = time.process_time()
            digest = run_case(options.here, options.folder, Path(directory), execution)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = time.process_time() - began_s + children.ru_utime + children.ru_stime
        print(json.dumps({"digest": digest, "peak_mib": peak_kib() >> 10, "cpu_s": round(cpu_s, 1)}))
        return 0
    failed = 0
    for case in options.cases:
        normalized(options.folder, case.partition(":")[2])
        index(options.folder)
        arguments = [sys.executable, "-m", "tests.ops.decontaminate.memory", "--here", case, "--folder", str(options.folder)]
        arguments += ["--workers", str(options.workers), "--memory-mib", str(options.memory_mib)]
        child = subprocess.run(arguments, stdout=subprocess.PIPE, preexec_fn=under_cap(options.cap_mib))
        failed += child.returncode != 0
        told = child.stdout.decode().strip() or f"exit code {child.returncode}"
        print(f"{case} cap {options.cap_mib} MiB, {options.workers} x {options.memory_mib} MiB: {told}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
