"""Score a checkpoint on held-out text, beside counting baselines and beside what was predicted for it."""

from collections.abc import Mapping
from typing import Any

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.config import EvaluateConfig, Metric
from model.eval.baselines import read_baselines
from model.eval.held_out import HeldOutScorer
from model.eval.intervals import Interval, bootstrap
from model.eval.report import Evaluation, PredictionResult, ScoredRun, ScorerResult, SliceResult
from model.eval.samples import samples
from model.eval.scores import summarize
from model.finish import read_model
from model.prediction import Prediction, UnscoredError, measured_of, read_prediction, score
from model.run import FinishedRun, read_run, require_tokenizer
from model.scaling import metric_identity
from ops.cache import read_ledger
from ops.tokenizer import load_tokenizer


class EvaluateStats(Stats):
    """An evaluation in numbers. `signed_error` is None where the checkpoint is not the one that was predicted."""

    documents: int
    tokens: int
    bytes: int
    averages: dict[str, float]
    baseline_averages: dict[str, dict[str, float]]
    predicted: float
    measured: float
    signed_error: float | None
    is_within_tolerance: bool | None


@program(version="7")
def evaluate(
    config: EvaluateConfig,
    checkpoint: Artifact,
    store: Artifact,
    tokenizer: Artifact,
    baselines: Artifact,
    prediction: Artifact,
    out: Writer,
) -> EvaluateStats:
    """Score a train or branch artifact.

    Args:
        checkpoint: its final state is scored, with dropless experts.
        store: held-out documents of every domain.
        baselines: counted over the same tokens and bytes as the model is scored on.
        prediction: registered before the run; scored only if this checkpoint is that run.
        out: gets `evaluation.json` and `samples.json`.

    Raises:
        ValueError: store or tokenizer are not of the checkpoint's tokenizer; the store has no held-out text; or the baselines were scored
            on other tokens.
    """
    finished = read_run(checkpoint)
    require_tokenizer(finished, store=read_ledger(store).tokenizer_digest, tokenizer=tokenizer.digest)
    held_out = config.held_out or finished.run.held_out
    params, router_bias = read_model(checkpoint, finished.run)
    scorer = HeldOutScorer(finished.run.model, store, held_out)
    scores = scorer.score(params, router_bias, heartbeat=lambda done: out.progress(done, None, "held-out sequences"))
    if not scores:
        raise ValueError(f"{store.url} has no held-out documents; raise held_out_rate where the sources are normalised")
    intervals = bootstrap(scores, resamples=config.interval_resamples, level=config.interval_level, seed=config.seed)
    summary = summarize(scores)
    registered = read_prediction(prediction)
    evaluation = Evaluation(
        run=_scored_run(checkpoint, finished),
        held_out=held_out.metric_identity,
        drop_mode="dropless",
        interval_level=config.interval_level,
        model=_model_result(summary, intervals),
        baselines=read_baselines(baselines, held_out, scores),
        prediction=_prediction_result(registered, finished, held_out.metric_identity, summary),
    )
    out.write_json("evaluation.json", evaluation.model_dump(mode="json"))
    written = samples(
        params,
        router_bias,
        finished.run.model,
        load_tokenizer(tokenizer),
        config.prompts,
        max_new_tokens=config.sample_tokens,
        temperature=config.temperature,
        seed=config.seed,
    )
    out.write_json("samples.json", [sample.model_dump() for sample in _counted(written, len(config.prompts), out)])
    return _stats(evaluation)


def _counted(written: Any, total: int, out: Writer) -> Any:
    for number, sample in enumerate(written, 1):
        out.progress(number, total, "samples")
        yield sample


def _scored_run(checkpoint: Artifact, finished: FinishedRun) -> ScoredRun:
    state = finished.state
    return ScoredRun(
        digest=checkpoint.digest,
        kind="train" if finished.run.origin is None else "branch",
        step=state.step,
        tokens=state.tokens,
        flops=state.flops,
    )


def _model_result(summary: Mapping[str, Any], intervals: Mapping[str, Mapping[str, Interval]]) -> ScorerResult:
    domains = {
        domain: SliceResult.model_validate({**row, **{f"{name}_interval": ends for name, ends in intervals[domain].items()}})
        for domain, row in summary["domains"].items()
    }
    averages = {name: value for name, value in summary.items() if name != "domains"}
    return ScorerResult(domains=domains, averages=averages, average_intervals=dict(intervals["overall"]))


def _prediction_result(
    registered: Prediction, finished: FinishedRun, held_out: Mapping[str, Any], summary: Mapping[str, Any]
) -> PredictionResult:
    metric: Metric = registered.identity.metric
    value = float(summary[metric])
    identity = metric_identity(finished, metric).model_copy(update={"held_out": dict(held_out)})
    common = {"metric": metric, "predicted": registered.predicted, "measured": value, "difference": value - registered.predicted}
    try:
        found = score(registered, measured_of(finished, identity, value))
    except UnscoredError as reason:
        return PredictionResult.model_validate({**common, "score": None, "reason_not_scored": str(reason)})
    return PredictionResult.model_validate({**common, "score": found, "reason_not_scored": None})


def _stats(evaluation: Evaluation) -> EvaluateStats:
    slices = evaluation.model.domains.values()
    found = evaluation.prediction
    return EvaluateStats(
        documents=sum(one.documents for one in slices),
        tokens=sum(one.tokens for one in slices),
        bytes=sum(one.bytes for one in slices),
        averages=evaluation.model.averages,
        baseline_averages={name: result.averages for name, result in evaluation.baselines.items()},
        predicted=found.predicted,
        measured=found.measured,
        signed_error=found.score.signed_error if found.score else None,
        is_within_tolerance=found.score.is_within_tolerance if found.score else None,
    )
