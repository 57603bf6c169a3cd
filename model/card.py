"""The model card: what a person must know before using a release, every number taken from an artifact."""

from collections.abc import Iterable, Mapping, Sequence

from model.config import ReleaseConfig
from model.eval.report import Evaluation, SliceResult
from model.lineage import Lineage
from model.parameters import count
from model.run import FinishedRun

LOADING = """\
```python
from model.load import load_release, logits

release = load_release("path/to/this/folder")
scores = logits(release, tokens)  # [batch, tokens, vocab], float32
```

The loader is `model/load.py` of the Seaway repository. Stock loaders can't run this architecture: it carries a router bias, and
its arrays are stacked by layer and expert with matrices as [in, out].
"""


def model_card(config: ReleaseConfig, finished: FinishedRun, evaluations: Mapping[str, Evaluation], lineage: Lineage) -> str:
    """The card as Markdown. Deterministic: no dates, no hosts."""
    sections = [
        _head(config),
        f"# {config.name}\n\n{config.summary or 'A mixture-of-experts language model, trained and released by Seaway.'}",
        "## Loading it\n\n" + LOADING,
        "## The model\n\n" + _table(("", ""), _facts(finished)),
        "## Evaluation\n\n" + _evaluation(evaluations),
        "## Prediction and result\n\n" + "\n".join(_prediction_lines(evaluations)),
        "## Data lineage\n\n" + _lineage(lineage),
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in config.limits),
    ]
    return "\n\n".join(section.rstrip() for section in sections) + "\n"


def _head(config: ReleaseConfig) -> str:
    licence = "other" if " " in config.licence else config.licence.lower()
    return f"---\nlicense: {licence}\npipeline_tag: text-generation\ntags:\n- mixture-of-experts\n- base-model\n---"


def _facts(finished: FinishedRun) -> list[tuple[str, str]]:
    run, state = finished.run, finished.state
    parameters = count(run.model)
    facts = [
        ("Parameters", f"{parameters.total:,} in all, {parameters.active:,} active per token without embedding and head"),
        ("Experts", f"{run.model.experts}, {run.model.experts_per_token} per token, dropless"),
        ("Tokens seen", f"{state.tokens:,}"),
        ("Training FLOPs", f"{state.flops:.4g} ({', '.join(f'{name}: {value}' for name, value in state.flops_conventions.items())})"),
        ("Context", f"{run.loader.sequence_tokens:,} tokens"),
        ("Vocabulary", f"{run.model.vocab_size:,} entries, byte-level BPE"),
        ("Last update", f"{state.step:,}"),
    ]
    if run.origin is not None:
        share = f"{run.schedule.start_share:.3g} to {run.schedule.floor_share:.3g} of the peak learning rate"
        facts.append(("Cooldown", f"a branch after {run.origin.step:,} updates ({run.origin.tokens:,} tokens), from {share}"))
    return facts


def _evaluation(evaluations: Mapping[str, Evaluation]) -> str:
    parts = ["Bits per byte of held-out text, lower is better; each is a ratio of sums over the same tokens and bytes.\n"]
    for name, evaluation in evaluations.items():
        level = f"{evaluation.interval_level:.0%}"
        baselines = sorted(evaluation.baselines)
        header = ("domain", f"{name} ({level} interval over documents)", *baselines, "documents", "bytes")
        rows = [
            (
                domain,
                _with_interval(found),
                *(_number(evaluation.baselines[baseline].domains[domain].bits_per_byte) for baseline in baselines),
                f"{found.documents:,}",
                f"{found.bytes:,}",
            )
            for domain, found in evaluation.model.domains.items()
        ]
        average = (
            "macro average",
            _number(evaluation.model.averages.get("macro_bits_per_byte"), evaluation.model.average_intervals.get("macro_bits_per_byte")),
            *(_number(evaluation.baselines[baseline].averages.get("macro_bits_per_byte")) for baseline in baselines),
            "",
            "",
        )
        parts.append(_table(header, [*rows, average]) + "\n")
    return "\n".join(parts)


def _with_interval(found: SliceResult) -> str:
    return _number(found.bits_per_byte, found.bits_per_byte_interval)


def _number(value: float | None, interval: tuple[float, float] | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if interval is None else f"{value:.4f} ({interval[0]:.4f} to {interval[1]:.4f})"


def _prediction_lines(evaluations: Mapping[str, Evaluation]) -> Iterable[str]:
    for name, evaluation in evaluations.items():
        found = evaluation.prediction
        if found.score is None:
            yield f"- {name}: {found.metric} {found.measured:.4f}; {found.reason_not_scored}."
        else:
            inside = "within" if found.score.is_within_tolerance else "outside"
            yield (
                f"- {name}: predicted {found.metric} {found.predicted:.4f} before training, measured {found.measured:.4f}; the error of "
                f"{found.score.signed_error:+.4f} is {inside} the registered tolerance of {found.score.tolerance:.4f}."
            )


def _lineage(lineage: Lineage) -> str:
    total = lineage.total.documents
    names = ", ".join(source.source for source in lineage.sources)
    paragraph = (
        f"Built from {len(lineage.sources)} source(s): {names}. Of {total.read:,} extracted and normalised documents, "
        f"{total.contaminated:,} were dropped as contaminated by evaluation text, {total.fuzzy:,} as near duplicates, {total.exact:,} as "
        f"exact duplicates, {total.language:,} by language and {total.quality:,} by quality; {total.held_out:,} were held out for "
        f"evaluation ({total.held_out_duplicate:,} more were duplicates of those) and {total.out:,} are in the training store "
        f"({lineage.total.tokens.out:,} tokens)."
    )
    rows = [
        (one.source, one.kind, one.licence, *_counted(one.documents.read, one.documents.out, one.tokens.out), _short(one.digest))
        for one in lineage.sources
    ]
    sources = _table(("source", "kind", "terms", "documents in", "documents out", "tokens out", "digest"), rows)
    chain = _table(
        ("artifact", "program", "version", "recipe", "digest"),
        [(one.asset, f"`{one.program}`", one.version, f"`{one.recipe}`", _short(one.digest)) for one in lineage.artifacts],
    )
    return f"{paragraph}\n\n{sources}\n\nEvery artifact of the chain (whole digests in `lineage.json`):\n\n{chain}"


def _counted(*numbers: int) -> tuple[str, ...]:
    return tuple(f"{number:,}" for number in numbers)


def _short(digest: str) -> str:
    return f"`{digest[:16]}`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
