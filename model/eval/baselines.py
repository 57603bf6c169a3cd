"""What counting alone reaches, over exactly the tokens and bytes that the model is scored on."""

from collections.abc import Mapping
from typing import Any

from infra.artifacts.artifact import Artifact
from model.eval.report import ScorerResult, SliceResult
from model.eval.scores import Scores, averages

BASELINES = ("unigram", "five_gram")


def read_baselines(artifact: Artifact, scores: Scores) -> dict[str, ScorerResult]:
    """The baselines' results, by name.

    Args:
        scores: the model's; a baseline must have been scored on as many documents, tokens and bytes of each domain.

    Raises:
        ValueError: it was not, so the two can't stand side by side.
    """
    slices: Mapping[str, Mapping[str, Any]] = artifact.read_json("baselines.json")["slices"]
    model_sizes = {domain: (len(found.nats), int(found.tokens.sum()), int(found.bytes.sum())) for domain, found in scores.items()}
    baseline_sizes = {domain: (row["documents"], row["tokens"], row["bytes"]) for domain, row in slices.items()}
    if model_sizes != baseline_sizes:
        raise ValueError(
            f"the model was scored on (documents, tokens, bytes) {model_sizes}, the baselines on {baseline_sizes}; "
            "give held_out.tokens_per_domain and the baselines' held_out_tokens one number, and one store"
        )
    return {name: _result(slices, name) for name in BASELINES}


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
