"""What a released model says of itself, read without an accelerator library: enough to refuse a wrong one before anything is allocated."""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from infra.artifacts.manifest import FileEntry, digest_of
from ops.tokenizer import token_bytes_of

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
TOKEN_BYTES = "token_bytes.npy"  # of a tokenizer artifact, beside its TOKENIZER
LINEAGE = "lineage.json"  # of our own releases: digests of everything that the model was made of


class ModelFileError(ValueError):
    """A released folder that can't be evaluated; the message names file and field, and says what to do."""


@dataclass(frozen=True)
class Released:
    """What a released folder declares.

    Attributes:
        fingerprint: 16 hex over the contents of its config, tokenizer and weights.
    """

    vocab_size: int
    context_tokens: int
    fingerprint: str


def require_tokenizer(folder: Path) -> Released:
    """What a folder declares, once its tokenizer is known to be the model's.

    Raises:
        ModelFileError: a file is missing or unreadable, a field is missing, or the tokenizer is another model's.
    """
    config, tokenizer = _json(folder / CONFIG), _tokenizer(folder / TOKENIZER)
    _require_weights(folder / WEIGHTS)
    numbers = {name: _number(config, name, folder / CONFIG) for name in ("vocab_size", "max_position_embeddings", "eos_token_id")}
    require_vocabulary(tokenizer, numbers["vocab_size"], numbers["eos_token_id"], str(folder / TOKENIZER))
    _require_identity(folder)
    return Released(numbers["vocab_size"], numbers["max_position_embeddings"], fingerprint_of(folder))


def require_vocabulary(tokenizer: Tokenizer, vocab_size: int, end_id: int, where: str) -> None:
    """Refuse a tokenizer that isn't the model's.

    Args:
        where: its file, for the message.
    """
    size = tokenizer.get_vocab_size()
    if size > vocab_size:
        raise ModelFileError(
            f"{where}: vocab has {size} tokens and the model's vocab_size is {vocab_size}; it is another model's, take the model's"
        )
    if tokenizer.token_to_id("<|endoftext|>") != end_id:
        raise ModelFileError(
            f"{where}: vocab gives <|endoftext|> id {tokenizer.token_to_id('<|endoftext|>')} and the model's eos_token_id is {end_id}; "
            "it is another model's tokenizer, take the model's"
        )


def tokenizer_digest(path: Path) -> str:
    """The digest of the tokenizer artifact that a `tokenizer.json` is of: its other file, `token_bytes.npy`, follows from this one."""
    text = path.read_bytes()
    sizes = io.BytesIO()
    np.save(sizes, token_bytes_of(Tokenizer.from_str(text.decode())))
    files = {TOKENIZER: text, TOKEN_BYTES: sizes.getvalue()}
    entries = [FileEntry(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()) for name, content in files.items()]
    return digest_of(entries)


def _require_identity(folder: Path) -> None:
    """Refuse a tokenizer whose content is not what the release's lineage names: one of equal size would give numbers without a word.

    A folder that others made has no lineage, and nothing that its tokenizer could be held against.
    """
    if not (folder / LINEAGE).is_file():
        return
    try:
        recorded = next((line["digest"] for line in _json(folder / LINEAGE)["artifacts"] if line["asset"] == "tokenizer"), None)
    except (KeyError, TypeError):
        raise ModelFileError(
            f"{folder / LINEAGE}: artifacts is no list of assets with their digests; take the release's own file"
        ) from None
    if recorded is not None and recorded != (found := tokenizer_digest(folder / TOKENIZER)):
        raise ModelFileError(
            f"{folder / TOKENIZER}: digest is {found[:16]} and {folder / LINEAGE} names {recorded[:16]} as artifacts.tokenizer; "
            "it is another model's tokenizer, take the model's"
        )


def fingerprint_of(folder: Path) -> str:
    """16 hex over the contents of a release."""
    digest = hashlib.sha256()
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        with (folder / name).open("rb") as stream:
            digest.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read ({error.strerror}); name the folder of a release") from None
    except ValueError as error:
        raise ModelFileError(f"{path}: not JSON ({error}); name the folder of a release") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{path}: no JSON object; name the folder of a release")
    return found


def _require_weights(path: Path) -> None:
    """Refuse a file that is cut short or no safetensors file, by its header and its length: no weight is read."""
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file; name the folder of a release")
    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise ModelFileError(f"{path}: no whole safetensors file ({error}); copy the release again") from None


def _tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file; name the folder of a release")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception, whatever is wrong with the file
        raise ModelFileError(f"{path}: no tokenizer ({error}); take the model's") from None


def _number(config: dict[str, Any], name: str, path: Path) -> int:
    found = config.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ModelFileError(f"{path}: {name} is {found!r}, and must be a whole number; name the folder of a release")
    return found
