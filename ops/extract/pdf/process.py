"""Parses PDFs in a child process, which is killed and replaced when a file crashes or stalls it."""

import contextlib
import json
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import IO, Any, Self

import psutil

from ops.extract.config import PdfConfig
from ops.extract.pdf.ocr import ocr_name
from ops.extract.pdf.worker import READY, receive, send

RULES = "1"  # of what is done with the parser's text: another rule is another number
WORKER = "ops.extract.pdf.worker"
FILES_PER_WORKER = 1_000  # bounds what a native parser may leak
POLL_S = 1.0
STALL_S = 60.0  # without a CPU-second spent or a reply; on a busy machine a waiting process still gets its turn


@dataclass(frozen=True, slots=True)
class PdfDocument:
    """A file's text. `page_starts`: for every page, the character at which it begins. `extractor` names all that read it."""

    text: str
    page_starts: tuple[int, ...]
    extractor: str
    ocr_pages: int
    broken_pages: int


class PdfRejectedError(ValueError):
    """The file gives no text. `reason` is a word of `rejects.Reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class _EndedError(Exception):
    """The child is gone."""


class PdfReader:
    """Reads PDF files one by one. The child starts with the first file; `close` ends it."""

    def __init__(
        self, config: PdfConfig, *, worker: str = WORKER, stall_s: float = STALL_S, files_per_worker: int = FILES_PER_WORKER
    ) -> None:
        """Raises:
        ImportError: the OCR engine that the config names is not installed.
        """
        self.name = f"pypdfium2/{version('pypdfium2')}/{RULES}"
        self._ocr_suffix = "" if config.ocr == "none" else f"+{ocr_name(config.ocr)}"
        self._command = [sys.executable, "-P", "-m", worker, config.model_dump_json()]
        self._stall_s, self._files_per_worker = stall_s, files_per_worker
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._files = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._forget()

    def read(self, data: bytes) -> PdfDocument:
        """Read one file.

        Raises:
            PdfRejectedError: there is no text to be had; a crash and a used-up budget among the reasons.
            RuntimeError: the child does not even start.
        """
        reply = self._ask(data)
        if "reason" in reply:
            raise PdfRejectedError(reply["reason"], reply["detail"])
        extractor = self.name + (self._ocr_suffix if reply["ocr_pages"] else "")
        return PdfDocument(reply["text"], tuple(reply["page_starts"]), extractor, reply["ocr_pages"], reply["broken_pages"])

    def _ask(self, data: bytes) -> dict[str, Any]:
        if self._files >= self._files_per_worker:
            self.close()
        child = self._child or self._start()
        self._files += 1
        try:
            assert child.stdin is not None
            send(child.stdin, data)
            return self._reply(child, self._is_stalled(child))
        except (_EndedError, BrokenPipeError):
            return _ending(self._end_of(child))
        except TimeoutError:
            self.close()
            return {"reason": "timeout", "detail": f"no progress for {self._stall_s:g} seconds"}

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
        child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        self._child, self._files = child, 0
        try:
            ready = self._reply(child, self._is_stalled(child))
        except (_EndedError, TimeoutError) as error:
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace").strip()[-2_000:]
            self.close()
            raise RuntimeError(f"the PDF parser's process does not start; it said: {said}") from error
        assert ready == READY
        return child

    def _reply(self, child: subprocess.Popen[bytes], is_stalled: Callable[[], bool]) -> dict[str, Any]:
        assert child.stdout is not None
        while not select.select([child.stdout], [], [], POLL_S)[0]:
            if is_stalled():
                raise TimeoutError
        message = receive(child.stdout)
        if message is None:
            raise _EndedError
        reply: dict[str, Any] = json.loads(message)
        return reply

    def _is_stalled(self, child: subprocess.Popen[bytes]) -> Callable[[], bool]:
        """Whether the child has spent no CPU time for `stall_s`; asked again and again."""
        process = psutil.Process(child.pid)
        spent, since = -1.0, time.monotonic()

        def is_stalled() -> bool:
            nonlocal spent, since
            try:
                now = sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                return False  # it has ended, which the pipe says at once
            if now > spent:
                spent, since = now, time.monotonic()
            return time.monotonic() - since > self._stall_s

        return is_stalled

    def _end_of(self, child: subprocess.Popen[bytes]) -> int:
        code = child.wait()
        self._forget()
        return code

    def _forget(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # half a file was still to be written when the child ended
                        stream.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def _ending(code: int) -> dict[str, Any]:
    if code == -signal.SIGXCPU:
        return {"reason": "timeout", "detail": "the file used up its CPU-seconds"}
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {"reason": "parser-crash", "detail": f"the parser ended with {name}"}
