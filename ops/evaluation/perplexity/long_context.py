"""The long-context bundle: long documents as they are, and questions about one line of them that stand right before their answer."""

from collections.abc import Sequence
from random import Random

from ops.evaluation.perplexity.config import PerplexityConfig
from ops.evaluation.perplexity.slices import Slice, TextDocument, limited, supervised


def long_slices(config: PerplexityConfig, documents: Sequence[TextDocument]) -> list[Slice]:
    """`long_context/raw` and `long_context/retrieval`, from documents that are long; neither if there is none.

    The longest come first. A retrieval document is one of them with a line planted at a random place of its first half, so that it
    isn't the raw one again. That the answer's loss is low shows that it was found; a high one does not show that it wasn't, so its
    fidelity is low.
    """
    long = [document for document in documents if len(document.text.encode()) >= config.min_long_document_bytes]
    long.sort(key=lambda document: (-len(document.text.encode()), document.name))
    kept = limited(long, config.max_long_documents, config.max_long_document_bytes)
    if not kept:
        return []
    raw = [TextDocument(f"long-{document.name}", f"{document.text}\n", None, document.is_cut) for document in kept]
    planted = [_planted(document, Random(f"{config.seed}/long_context/{document.name}")) for document in kept]
    return [
        Slice("long_context/raw", raw, "raw", "store"),
        Slice("long_context/retrieval", planted, "supervised", "store, generated", fidelity="low"),
    ]


def _planted(document: TextDocument, random: Random) -> TextDocument:
    """A document with a register's value in it, and after its end the question and the value."""
    name, value = f"register-{random.randrange(16**4):04x}", str(random.randrange(10**9))
    lines = document.text.split("\n")
    place = random.randrange(len(lines) // 2 + 1)
    text = "\n".join([*lines[:place], f"The value of {name} is {value}.", *lines[place:]])
    return supervised(f"find-{document.name}", f"{text}\n\nThe value of {name} is", f" {value}.\n")
