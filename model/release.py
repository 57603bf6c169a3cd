"""Release a checkpoint: weights, config, tokenizer, and a card whose every number comes from the lineage."""

from collections.abc import Mapping

from infra.artifacts.artifact import Artifact, Artifacts
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from model.array_files import places_in, read_box, slabs_of, write_arrays
from model.card import model_card
from model.config import ReleaseConfig
from model.eval.report import Evaluation
from model.export import CONFIG, ROUTER_BIAS, WEIGHTS, release_config, released_name
from model.finish import MODEL
from model.lineage import lineage_of
from model.parameters import count
from model.pieces import check_pieces
from model.run import FinishedRun, read_run, require_tokenizer
from model.step import state_shapes
from ops.tokenizer import END_OF_TEXT_ID, PAD, SPECIALS


class ReleaseStats(Stats):
    """A release in numbers."""

    total_parameters: int
    active_parameters: int
    tokens_seen: int
    sources: int
    macro_bits_per_byte: float | None  # of the released checkpoint; None without held-out text


@program(version="6")
def release(
    config: ReleaseConfig,
    checkpoint: Artifact,
    tokenizer: Artifact,
    store: Artifact,
    mixture: Artifact,
    prediction: Artifact,
    evaluation: Artifacts,
    raw: Artifacts,
    out: Writer,
) -> ReleaseStats:
    """Write a folder that a person can use without this project's storage.

    Args:
        checkpoint: the train or branch artifact that is released.
        evaluation: evaluations by checkpoint name; one of them must be of `checkpoint`.
        raw: every source the store was built from.
        out: gets `model.safetensors` (with the router bias), `config.json`, `tokenizer.json`, `lineage.json` and `README.md`.

    Raises:
        ValueError: no evaluation is of this checkpoint, or the checkpoint was trained on another store or mixture, or on another
            tokenizer's tokens.
    """
    finished = read_run(checkpoint)
    require_tokenizer(finished, tokenizer=tokenizer.digest)
    evaluations = {name: Evaluation.model_validate(artifact.read_json("evaluation.json")) for name, artifact in evaluation.items()}
    released = _evaluation_of(checkpoint, evaluations)
    _check_data(finished, store, mixture)
    others = {"tokenizer": tokenizer, "mixture": mixture, "prediction": prediction}
    scored = {f"evaluation[{name}]": artifact for name, artifact in evaluation.items()}
    lineage = lineage_of(raw, store, {**others, "checkpoint": checkpoint, **scored}, config.source_licences)

    _write_model(finished, checkpoint, out)
    with tokenizer.open("tokenizer.json") as source, out.open("tokenizer.json") as stream:
        stream.write(source.read())
    out.write_json("lineage.json", lineage.model_dump(mode="json"))
    with out.open("README.md") as stream:
        stream.write(model_card(config, finished, evaluations, lineage).encode())
    out.progress(1, 1, "releases")
    parameters = count(finished.run.model)
    return ReleaseStats(
        total_parameters=parameters.total,
        active_parameters=parameters.active,
        tokens_seen=finished.state.tokens,
        sources=len(lineage.sources),
        macro_bits_per_byte=released.model.averages.get("macro_bits_per_byte"),
    )


def _write_model(finished: FinishedRun, checkpoint: Artifact, out: Writer) -> None:
    """Weights and config; the weights slab by slab, for they may exceed this host's memory."""
    shapes = state_shapes(finished.run)
    with checkpoint.open(MODEL) as source, out.open(WEIGHTS) as stream:
        places = places_in(source)
        stored = {name: (place.shape, place.dtype) for name, place in places.items()}
        check_pieces(f"{checkpoint.url}/{MODEL}", stored, {"parameters": shapes.parameters, ROUTER_BIAS: shapes.router_bias})
        released = {released_name(name): place for name, place in places.items()}
        declared = {name: (place.shape, place.dtype) for name, place in released.items()}
        write_arrays(stream.write, declared, lambda name: (read_box(source, released[name], box) for box in slabs_of(released[name])))
    described = release_config(
        finished.run.model,
        context_tokens=finished.run.loader.sequence_tokens,
        end_of_text_id=END_OF_TEXT_ID,
        pad_id=SPECIALS.index(PAD),
    )
    out.write_json(CONFIG, described)


def _evaluation_of(checkpoint: Artifact, evaluations: Mapping[str, Evaluation]) -> Evaluation:
    for evaluation in evaluations.values():
        if evaluation.run.digest == checkpoint.digest:
            return evaluation
    of = ", ".join(f"{name} ({evaluation.run.digest[:16]})" for name, evaluation in evaluations.items())
    raise ValueError(f"no evaluation is of the checkpoint {checkpoint.digest[:16]}; there are {of}. Evaluate what is released")


def _check_data(finished: FinishedRun, store: Artifact, mixture: Artifact) -> None:
    for name, artifact in (("store", store), ("mixture", mixture)):
        if (expected := getattr(finished.state.data, name)) != artifact.digest:
            raise ValueError(f"the checkpoint was trained on {name} {expected[:16]}, given is {artifact.digest[:16]}; release what it saw")
