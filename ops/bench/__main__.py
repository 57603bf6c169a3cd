"""Every data stage, and the whole path from WARC to tokens, beside its peers on the same real input.

    python -m ops.bench                    # a table; peers from .venv-peers (`make peers`)
    python -m ops.bench --json --rounds 5
    python -m ops.bench --stage rules --stage minhash --megabytes 8

Rounds are interleaved and each candidate runs in a process of its own, so ratios hold on a busy machine; rates do not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ops.bench.report import as_json, lines_of
from ops.bench.run import ROOT, measure
from ops.bench.stages import STAGES

PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description="Measure the data stages beside their peers.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument(
        "--stage", action="append", default=[], choices=[stage.key for stage in STAGES], help="only this one; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of every candidate")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of English text")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the real data")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one run is needed")
    if not (options.data / "corpus").is_dir():
        print(f"no real data at {options.data}; name its folder with --data", file=sys.stderr)
        return 2
    peers = PEER_PYTHON if PEER_PYTHON.exists() else None
    if peers is None:
        print(f"{PEER_PYTHON} is missing, so Seaway runs alone; `make peers` installs what it is measured against", file=sys.stderr)
    stages = [stage for stage in STAGES if not options.stage or stage.key in options.stage]
    with tempfile.TemporaryDirectory(prefix="seaway-bench-") as folder:
        inputs = [sys.executable, "-m", "ops.bench.inputs", str(options.data.resolve()), folder, str(options.megabytes)]
        subprocess.run(inputs, check=True, cwd=ROOT)
        found, failed = measure(stages, Path(folder), options.rounds, peers, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(as_json(stages, found, failed), indent=1) if options.json else "\n".join(lines_of(stages, found, failed)))
    return int(any(reason for (_, candidate), reason in failed.items() if candidate == "seaway"))


if __name__ == "__main__":
    sys.exit(main())
