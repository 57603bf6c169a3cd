"""What counting alone reaches, over exactly the tokens and bytes that the model is scored on."""

from collections.abc import Mapping
from typing import Any

from infra.artifacts.artifact import Artifact
from model.config import HeldOutConfig
from model.eval.report import ScorerResult, SliceResult
from model.eval.scores import Scores, averages

BASELINES = ("unigram", "five_gram")
SELECTION = {"tokens_per_domain": "held_out_tokens", "max_document_tokens": "max_document_tokens"}  # the model's name: the baselines'


def read_baselines(artifact: Artifact, held_out: HeldOutConfig, scores: Scores) -> dict[str, ScorerResult]:
    """The baselines' results, by name.

    Args:
        held_out: how the model's text was chosen; the baselines' must have been chosen by the same numbers.
        scores: the model's; a baseline must have been scored on as many documents, tokens and bytes of each domain.

    Raises:
        ValueError: it was not, so the two can't stand side by side.
    """
    written = artifact.read_json("baselines.json")
    _require_one_selection(written, held_out)
    slices: Mapping[str, Mapping[str, Any]] = written["slices"]
    model_sizes = {domain: (len(found.nats), int(found.tokens.sum()), int(found.bytes.sum())) for domain, found in scores.items()}
    baseline_sizes = {domain: (row["documents"], row["tokens"], row["bytes"]) for domain, row in slices.items()}
    if model_sizes != baseline_sizes:
        raise ValueError(
            f"the model was scored on (documents, tokens, bytes) {model_sizes}, the baselines on {baseline_sizes}; "
            "build both from one store"
        )
    return {name: _result(slices, name) for name in BASELINES}


def _require_one_selection(written: Mapping[str, Any], held_out: HeldOutConfig) -> None:
    for name, theirs in SELECTION.items():
        if (ours := getattr(held_out, name)) != written.get(theirs):
            raise ValueError(
                f"the model was scored under held_out.{name} = {ours}, the baselines under {theirs} = {written.get(theirs)}; "
                f"give held_out.{name} and the baselines' {theirs} one number"
            )


def _result(slices: Mapping[str, Mapping[str, Any]], name: str) -> ScorerResult:
    domains = {
        domain: SliceResult(
            documents=row["documents"],
            tokens=row["tokens"],
            bytes=row["bytes"],
            nats=(row[name]["nats_per_token"] or 0.0) * row["tokens"],
            nats_per_token=row[name]["nats_per_token"],
            bits_per_byte=row[name]["bits_per_byte"],
        )
        for domain, row in sorted(slices.items())
    }
    rows = {domain: found.model_dump(exclude_none=True) for domain, found in domains.items()}
    return ScorerResult(domains=domains, averages=averages(rows), average_intervals={})
