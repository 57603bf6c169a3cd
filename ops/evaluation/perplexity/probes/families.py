"""The probe families: text made from a seed, read by a real parser before it is scored. Plain continuations: a chat frame around such
text makes a gap of its own that says nothing about the text."""

from collections.abc import Callable, Iterator, Mapping
from random import Random

from ops.evaluation.perplexity.probes.delimiters import json_closings
from ops.evaluation.perplexity.probes.identifiers import copied_uuids, encoded_words
from ops.evaluation.perplexity.probes.machine_records import csv_rows, log_lines
from ops.evaluation.perplexity.probes.patches import unified_diffs
from ops.evaluation.perplexity.slices import Slice, TextDocument

Maker = Callable[[Random, int], Iterator[TextDocument]]

PROBES: Mapping[str, tuple[Maker, str]] = {
    "probe/delimiter/json": (json_closings, "json"),
    "probe/identifier/uuid": (copied_uuids, "uuid"),
    "probe/identifier/encoding": (encoded_words, "base64, urllib"),
    "probe/machine_record/csv": (csv_rows, "csv"),
    "probe/machine_record/log": (log_lines, "datetime"),
    "probe/patch/unified": (unified_diffs, "difflib"),
}
"""Key -> what makes the documents, and what reads them."""


def probe_slices(seed: int, documents: int) -> list[Slice]:
    """All probes. A slice draws from a seed of its own, so that a new one moves no other."""
    return [
        Slice(key, list(make(Random(f"{seed}/{key}"), documents)), "supervised", "generated", more_tags={"parser": parser})
        for key, (make, parser) in PROBES.items()
    ]
