"""`python -m tests.ops.extract.mortal DIRECTORY`: an extraction that is killed once at every shard of both its stages."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from infra.artifacts.artifact import Artifact
from infra.artifacts.writer import Writer
from ops.dataflow.shard import Shard, StageFunction, Tally
from ops.extract import documents
from ops.extract.config import ExtractConfig
from tests.builders import publish


def main(directory: Path) -> None:
    """Publish at DIRECTORY/done; every shard that is begun becomes a line of DIRECTORY/journal."""

    def mortal(stage: str, function: StageFunction) -> StageFunction:
        def begin(shard: Shard, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
            with (directory / "journal").open("a") as journal:
                journal.write(f"{stage} {shard.index}\n")
            marker = directory / f"died-{stage}-{shard.index}"
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(shard, batches, tally)

        return begin

    interpreting = documents.InterpretRecords
    documents.InterpretRecords = lambda *given: mortal("records", interpreting(*given))  # type: ignore[assignment, misc]
    documents.keep_documents = mortal("documents", documents.keep_documents)  # type: ignore[assignment]
    out = Writer(str(directory / "done/attempt"), scratch_url=str(directory / "scratch"))
    stats = documents.extract(ExtractConfig(), raw=Artifact.open_at(str(directory / "raw")), out=out)
    publish(directory / "done", out, stats.model_dump(mode="json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
