"""The process that parses PDFs: `python -P -m ops.extract.pdf.worker CONFIG`. Files come in on stdin, replies go out.

A message is its length, 8 bytes big-endian, then that many bytes: a file on the way in, JSON on the way out. The kernel
ends this process when a file has used up its CPU-seconds; memory has a hard cap. Nothing here outlives stdin's end.
"""

import json
import math
import os
import resource
import struct
import sys
from typing import IO, Any

from ops.extract.config import PdfConfig
from ops.extract.pdf.ocr import Ocr, ocr_engine
from ops.extract.pdf.parser import PdfError, read_pdf

LENGTH = struct.Struct(">Q")
READY: dict[str, Any] = {"ready": True}


def main() -> None:
    config = PdfConfig.model_validate_json(sys.argv[1])
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not reach the parent as a reply
    ocr = ocr_engine(config.ocr)
    _limit_memory(config.memory_bytes if ocr is None else config.ocr_memory_bytes)
    send(replies, json.dumps(READY).encode())
    while (data := receive(sys.stdin.buffer)) is not None:
        allow_cpu(config.open_cpu_s)
        send(replies, json.dumps(_reply(data, config, ocr)).encode())


def _reply(data: bytes, config: PdfConfig, ocr: Ocr | None) -> dict[str, Any]:
    try:
        found = read_pdf(data, config, ocr, allow_cpu)
    except PdfError as error:
        return {"reason": error.reason, "detail": error.detail}
    except MemoryError:
        return {"reason": "parser-crash", "detail": f"out of memory; memory_bytes is {config.memory_bytes}"}
    except Exception as error:  # a bug met by one file must not lose the others
        return {"reason": "extractor-error", "detail": f"{type(error).__name__}: {error}"}
    return {"text": found.text, "page_starts": found.page_starts, "ocr_pages": found.ocr_pages, "broken_pages": found.broken_pages}


def allow_cpu(seconds: float) -> None:
    """Let the process use so many CPU-seconds from now on; the kernel ends it (SIGXCPU) after them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds))


def _limit_memory(limit: int) -> None:
    _lower(resource.RLIMIT_CORE, 0)  # a crash is an outcome here, and leaves no file behind
    if sys.platform == "linux":  # macOS refuses it
        _lower(resource.RLIMIT_AS, limit)


def _lower(kind: int, limit: int) -> None:
    """Set a soft limit, at most the hard one that a cluster may have set."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(LENGTH.pack(len(message)) + message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None where the stream ends, in its midst too."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    message = stream.read(size)
    return message if len(message) == size else None


if __name__ == "__main__":
    main()
