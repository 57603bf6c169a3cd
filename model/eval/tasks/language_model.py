"""A model beside its tokenizer: what every evaluation asks. From a released folder, a release artifact, or a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from jax import Array
from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact, Artifacts
from model.architecture import ModelConfig
from model.attention_choice import settled
from model.export import CONFIG
from model.finish import read_model
from model.load import load_release
from model.parameters import Params
from model.run import read_run
from ops.evaluation.models import require_tokenizer
from ops.tokenizer import END_OF_TEXT_ID, load_tokenizer

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class LanguageModel:
    """Text in, probabilities and text out. Experts are dropless: a capacity would make an answer hang on its neighbours.

    Attributes:
        context_tokens: the most tokens that the model reads at one time.
        end_id: the token that ends a document; before a text that begins one it stands in for what isn't there.
    """

    params: Params
    router_bias: Array
    config: ModelConfig
    tokenizer: Tokenizer
    context_tokens: int
    end_id: int = END_OF_TEXT_ID

    def encode(self, text: str) -> list[int]:
        """Token ids of a text that is data: no special token is added, and none is read out of it."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text


def open_model(folder: str | None, model: Artifacts, context_tokens: int | None = None) -> LanguageModel:
    """The model that a job's inputs or a folder name.

    Args:
        folder: a released folder; None to take it from `model`.
        model: `release`, or `checkpoint` and `tokenizer`.
        context_tokens: read at most so many; None for as many as the model was trained on.
    """
    if folder is not None:
        return of_folder(Path(folder), context_tokens)
    if "release" in model:
        release = model["release"]
        return of_folder(release.local_path(CONFIG).parent, context_tokens)
    return of_checkpoint(model["checkpoint"], model["tokenizer"], context_tokens)


def of_folder(folder: Path, context_tokens: int | None = None) -> LanguageModel:
    """A released model.

    Raises:
        FileNotFoundError: no release lies there.
        ModelFileError: its tokenizer is another model's.
    """
    released = require_tokenizer(folder)
    loaded = load_release(folder)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.encode_special_tokens = True
    return _settled(LanguageModel(loaded.params, loaded.router_bias, loaded.config, tokenizer, context_tokens or released.context_tokens))


def of_checkpoint(checkpoint: Artifact, tokenizer: Artifact, context_tokens: int | None = None) -> LanguageModel:
    """The final state of a train or branch artifact."""
    run = read_run(checkpoint).run
    params, router_bias = read_model(checkpoint, run)
    length = context_tokens or run.loader.sequence_tokens
    return _settled(LanguageModel(params, router_bias, run.model, load_tokenizer(tokenizer), length))


def _settled(model: LanguageModel) -> LanguageModel:
    config, _ = settled(model.config, model.context_tokens)
    return LanguageModel(model.params, model.router_bias, config.dropless, model.tokenizer, model.context_tokens, model.end_id)
