"""The PDF worker with a parser that fails the way native code does, on files that ask for it."""

import ctypes
import os
import signal
import time
from collections.abc import Callable

from ops.extract.config import PdfConfig
from ops.extract.pdf import parser, worker
from ops.extract.pdf.ocr import Ocr


def faulty(data: bytes, config: PdfConfig, ocr: Ocr | None, allow: Callable[[float], None]) -> parser.PdfText:
    match data:
        case b"segfault":
            ctypes.string_at(0)
        case b"abort":
            os.abort()
        case b"spin":
            while True:
                pass
        case b"sleep":
            time.sleep(600)
        case b"hoard":
            hoard = [bytearray(16 << 20) for _ in range(1_000)]
            raise AssertionError(f"{len(hoard)} blocks were had")
        case b"quit":
            os._exit(3)
        case b"stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case b"bug":
            raise ZeroDivisionError("a bug")
        case b"print":
            os.write(1, b"a library's chatter")
    return parser.read_pdf(data, config, ocr, allow)


if __name__ == "__main__":
    worker.read_pdf = faulty
    worker.main()
