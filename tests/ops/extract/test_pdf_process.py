"""A file that crashes, stalls or bloats the parser costs itself and nothing else."""

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from ops.extract.config import PdfConfig
from ops.extract.pdf.process import PdfReader, PdfRejectedError
from tests.ops.extract.fuzzing import mutated
from tests.ops.extract.pdf_files import pdf

FAULTY = "tests.ops.extract.faulty_pdf_worker"
GOOD = pdf([["Good text."]])
FUZZ_CASES = 400


@pytest.fixture
def reader() -> Iterator[PdfReader]:
    config = PdfConfig(open_cpu_s=1, memory_bytes=512 << 20)
    with PdfReader(config, worker=FAULTY, stall_s=3) as reader:
        yield reader


def outcome(reader: PdfReader, data: bytes) -> str:
    try:
        return reader.read(data).text
    except PdfRejectedError as error:
        return error.reason


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (b"segfault", "parser-crash"),
        (b"abort", "parser-crash"),
        (b"quit", "parser-crash"),
        (b"spin", "timeout"),
        (b"sleep", "timeout"),
        (b"stop", "timeout"),
        (b"bug", "extractor-error"),
        pytest.param(b"hoard", "parser-crash", marks=pytest.mark.skipif(sys.platform != "linux", reason="macOS has no cap on memory")),
    ],
)
def test_a_fault_costs_one_file(reader: PdfReader, fault: bytes, reason: str) -> None:
    assert [outcome(reader, data) for data in (GOOD, fault, GOOD, fault, GOOD)] == [
        "Good text.",
        reason,
        "Good text.",
        reason,
        "Good text.",
    ]


def test_what_a_library_prints_is_no_reply(reader: PdfReader) -> None:
    assert outcome(reader, b"print") == "broken-file"
    assert outcome(reader, GOOD) == "Good text."


def test_a_large_file_that_ends_its_parser_half_way_is_a_crash(reader: PdfReader) -> None:
    assert outcome(reader, b"quit") == "parser-crash"
    assert outcome(reader, GOOD + b" " * (8 << 20)) == "Good text."


def test_a_worker_that_does_not_start_is_an_error_with_its_words() -> None:
    with PdfReader(PdfConfig(), worker="ops.extract.pdf.no_such_worker") as reader, pytest.raises(RuntimeError, match="No module named"):
        reader.read(GOOD)


def test_replacing_the_worker_changes_nothing() -> None:
    files = [GOOD, b"%PDF-broken", pdf([["Two"], ["pages"]]), GOOD]
    with PdfReader(PdfConfig()) as lasting, PdfReader(PdfConfig(), files_per_worker=1) as fleeting:
        assert [outcome(lasting, data) for data in files] == [outcome(fleeting, data) for data in files]


def test_closing_ends_the_worker() -> None:
    with PdfReader(PdfConfig()) as reader:
        reader.read(GOOD)
        living = [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
        [child] = [process for process in living if "ops.extract.pdf.worker" in process.cmdline()]
    assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE


def test_the_worker_ends_with_a_parent_that_was_killed() -> None:
    script = (
        "import os, psutil, signal, sys\n"
        "from ops.extract.config import PdfConfig\n"
        "from ops.extract.pdf.process import PdfReader\n"
        "reader = PdfReader(PdfConfig())\n"
        "reader.read(bytes.fromhex(sys.argv[1]))\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, GOOD.hex()], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    deadline = time.monotonic() + 60
    while _is_running(child):
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_damaged_files_end_as_text_or_a_typed_reject() -> None:
    """The kernel holds each to 3 CPU-seconds and 1 GiB; a file that needs more would show as a timeout or a crash."""
    seeds = [pdf([[f"line {n} of a page" for n in range(20)]] * 3), pdf([["secret"]], password="x"), GOOD]
    seen: dict[str, int] = {}
    started = time.monotonic()
    with PdfReader(PdfConfig(open_cpu_s=3)) as reader:
        for case in range(FUZZ_CASES):
            result = outcome(reader, mutated(seeds, case))
            kind = result if result in ("encrypted", "broken-file", "empty-text", "timeout", "parser-crash") else "document"
            seen[kind] = seen.get(kind, 0) + 1
    print(f"\n{seen} in {time.monotonic() - started:.1f} s")
    assert seen["document"] > 50
    assert seen["broken-file"] > 10
    assert seen.get("parser-crash", 0) + seen.get("timeout", 0) < FUZZ_CASES / 50
