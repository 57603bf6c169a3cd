"""The stages that are measured, who runs each, and what is aimed at."""

from dataclasses import dataclass

OURS = "seaway"


@dataclass(frozen=True)
class Stage:
    """One comparison.

    Attributes:
        key: its name in `ours.STAGES` and `peers.CANDIDATES`.
        peers: the first is the one that ratios and the target refer to.
        target: the least ratio of CPU seconds a document to aim at.
        clock: what is inside the clock, where the sides do not do exactly the same.
    """

    key: str
    title: str
    peers: tuple[str, ...]
    target: float
    clock: str


STAGES = (
    Stage("warc", "WARC read", ("datatrove",), 3.5, "datatrove also decodes UTF-8; both skip requests"),
    Stage("extract", "HTML to text", ("datatrove",), 8, "HTML strings in memory to text; datatrove: trafilatura in its sandbox process"),
    Stage(
        "language", "language", ("datatrove",), 10, "texts in memory to labels; both with lid.176.ftz, whose unquantized form is a download"
    ),
    Stage("exact", "exact dedup", ("datatrove",), 8, "from a Parquet file; datatrove reads it twice, ours writes flags"),
    Stage("minhash", "MinHash dedup", ("datatrove", "rensa"), 200, "word 5-grams, 14 bands of 8; files in between as each has them"),
    Stage("decontamination", "decontamination", ("datatrove",), 100, "13-grams; the index is built before"),
    Stage("rules", "rule filters", ("datatrove",), 80, "Gopher quality and repetition, C4, FineWeb; every family judges every text"),
    Stage("tokenization", "tokenization", ("datatrove",), 25, "one vocabulary of 32,768; datatrove also writes the ids"),
    Stage("whole", "WARC to tokens", ("datatrove",), 10, "the same filters; artifacts or JSON lines are written between stages"),
)
