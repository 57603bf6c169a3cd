"""Providers: where slices come from. Each gives {key: slice}; `gather` puts them together, and refuses what can't be compared."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from infra.archive.records import escape
from infra.artifacts.artifact import Artifact
from ops.cache import held_out_documents, read_ledger
from ops.decontaminate.evaluations import EvaluationError, files_of, items_of, observe
from ops.evaluation.perplexity.config import PerplexityConfig, TextFiles
from ops.evaluation.perplexity.long_context import long_slices
from ops.evaluation.perplexity.probes.families import probe_slices
from ops.evaluation.perplexity.slices import Loss, Slice, SliceError, TextDocument, checked, limited, supervised
from ops.tokenizer import load_tokenizer

UNBOUNDED_TOKENS = 1 << 40  # documents are limited in bytes, which mean the same for every tokenizer


def gather(config: PerplexityConfig, store: Artifact, tokenizer: Artifact) -> list[Slice]:
    """All slices, by key. Nothing is scored yet, so what is wrong is told before any accelerator is busy.

    Raises:
        SliceError: names key and document.
    """
    held_out = held_out_slices(store, tokenizer) if config.held_out or config.long_context else []
    slices = [file_slice(files, config) for files in config.files]
    if config.held_out:
        slices += [_limited(found, config) for found in held_out]
    if config.probes:
        slices += probe_slices(config.seed, config.probe_documents)
    if config.long_context:
        slices += long_slices(config, [document for found in held_out for document in found.documents])
    if not slices:
        raise SliceError("no provider gives a slice; set one of files, held_out, probes and long_context")
    return checked(slices)


def held_out_slices(store: Artifact, tokenizer: Artifact) -> list[Slice]:
    """The store's held-out documents as text, a slice a domain. A byte-level vocabulary gives back every byte of them."""
    decode = load_tokenizer(tokenizer).decode
    slices = []
    for bucket in read_ledger(store).split("held_out"):
        found = held_out_documents(store, bucket.domain, UNBOUNDED_TOKENS, UNBOUNDED_TOKENS)
        texts = (decode(tokens.tolist(), skip_special_tokens=True) for tokens in found)
        documents = [TextDocument(f"{bucket.domain}-{number:05d}", text) for number, text in enumerate(texts) if text]
        if documents:
            slices.append(Slice(f"held_out/{bucket.domain}", documents, "raw", "store"))
    return slices


def file_slice(files: TextFiles, config: PerplexityConfig) -> Slice:
    """The slice of a provider of files.

    Raises:
        SliceError: there is no file, it changed since it was planned, or a row is of neither kind.
    """
    paths = files_of(files.as_set)
    if not paths:
        raise SliceError(f"slice {files.key}: no file {files.glob} below {files.root}; correct the provider")
    if files.observed and observe(files.as_set) != files.observed:
        raise SliceError(f"slice {files.key}: files below {files.root} changed since this was planned; plan it again")
    try:
        documents = list(_documents(files, paths))
    except EvaluationError as error:
        raise SliceError(f"slice {files.key}: {error}") from None
    loss: Loss = "supervised" if documents and documents[0].target is not None else "raw"
    found = Slice(files.key, documents, loss, files.source, files.fidelity)
    return _limited(found, config)


def _documents(files: TextFiles, paths: Iterable[Path]) -> Iterator[TextDocument]:
    for path in paths:
        for number, row in enumerate(items_of(path)):
            name = f"{path.name}-{number:05d}"
            yield _document(row, name, f"slice {files.key}: {path}, row {number + 1}")


def _document(row: Any, name: str, where: str) -> TextDocument:
    match row:
        case {"input": str(before), "target": str(target)}:
            return supervised(name, escape(before), escape(target))
        case {"text": str(text)}:
            return TextDocument(name, escape(text))
    raise SliceError(f"{where}: it has neither a text nor an input and a target; rows are objects with the one or the other")


def _limited(found: Slice, config: PerplexityConfig) -> Slice:
    documents = limited(found.documents, config.max_documents, config.max_document_bytes)
    return Slice(found.key, documents, found.loss, found.source, found.fidelity, found.more_tags)
