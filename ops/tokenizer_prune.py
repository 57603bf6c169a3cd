"""A smaller vocabulary out of a larger one: the first merges, and nothing that they can't reach.

Byte-pair encoding applies merges by rank, so the first n merges are a tokenizer of their own, whose tokens the larger
one goes on joining: every boundary of the larger is one of the smaller. Vocabularies pruned from one are nested, and where
ids follow ranks, as ours do, a token has the same id in each.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tokenizers import Tokenizer

from infra.artifacts.artifact import Artifact
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer
from ops.config import PruneTokenizerConfig
from ops.tokenizer import token_bytes_of, write_array

Json = dict[str, Any]


class TokenizerPruneError(ValueError):
    """The tokenizer is none that can be pruned, or not to this size."""


class PruneTokenizerStats(Stats):
    """Tokens before and after. Unreachable ones had no merge that makes them, or lost it."""

    vocab_size: int
    source_vocab_size: int
    merges: int
    unreachable: int


@dataclass(frozen=True)
class Pruned:
    """A tokenizer as JSON, and how many of the source's tokens no merge ever makes."""

    content: Json
    unreachable: int


@program(version="1")
def prune_tokenizer(config: PruneTokenizerConfig, tokenizer: Artifact, out: Writer) -> PruneTokenizerStats:
    """Cut a vocabulary down to a size.

    Args:
        tokenizer: `tokenizer.json` of byte-pair encoding.
        out: `tokenizer.json` and `token_bytes.npy`, as `train_tokenizer` writes them: it takes that artifact's place.

    Raises:
        TokenizerPruneError: see `pruned`.
    """
    with tokenizer.open("tokenizer.json") as stream:
        source = json.loads(stream.read())
    found = pruned(source, config.vocab_size)
    smaller = Tokenizer.from_str(json.dumps(found.content))
    write_array(out, "token_bytes.npy", token_bytes_of(smaller))
    with out.open("tokenizer.json") as stream:
        stream.write(smaller.to_str(pretty=True).encode())
    return PruneTokenizerStats(
        vocab_size=smaller.get_vocab_size(),
        source_vocab_size=Tokenizer.from_str(json.dumps(source)).get_vocab_size(),
        merges=len(found.content["model"]["merges"]),
        unreachable=found.unreachable,
    )


def pruned(source: Json, vocab_size: int) -> Pruned:
    """A tokenizer of at most `vocab_size` tokens: added tokens, base symbols, and the results of the first merges.

    Ids keep their order and leave no gaps. Tokens that no merge makes are left out: the encoder can't give them.

    Raises:
        TokenizerPruneError: the model is not byte-pair encoding, names its special tokens by id in a post-processor, or
            has more added tokens and base symbols than `vocab_size`.
    """
    model = source["model"]
    if model.get("type") != "BPE":
        raise TokenizerPruneError(f"a tokenizer of type {model.get('type')} has no merges to cut; only BPE can be pruned")
    if source.get("post_processor") and "special_tokens" in json.dumps(source["post_processor"]):
        raise TokenizerPruneError("the post-processor names special tokens by id, which change; take it out of tokenizer.json first")
    vocab: Mapping[str, int] = model["vocab"]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else (merge[0], merge[1]) for merge in model["merges"]]
    results = {left + right for left, right in merges}
    added = {entry["content"] for entry in source.get("added_tokens", [])}
    base = {token for token in vocab if token not in results and token not in added and len(token) == 1}
    kept = added | base
    if vocab_size < len(kept):
        raise TokenizerPruneError(
            f"{len(added)} added tokens and {len(base)} base symbols don't fit into {vocab_size}; ask for {len(kept)} or more"
        )
    chosen = []
    for left, right in merges:
        if left not in kept or right not in kept:
            continue
        if left + right not in kept and len(kept) == vocab_size:
            break  # what follows would be applied although an earlier merge is not
        kept.add(left + right)
        chosen.append([left, right])
    entries = source.get("added_tokens", [])
    by_content = {entry["content"]: entry["id"] for entry in entries}
    order = sorted(kept, key=lambda token: by_content.get(token, vocab.get(token, -1)))
    ids = {token: number for number, token in enumerate(order)}
    unreachable = sum(token not in results and token not in base and token not in added for token in vocab)
    content = {
        **source,
        "added_tokens": sorted(({**entry, "id": ids[entry["content"]]} for entry in entries), key=itemgetter("id")),
        "model": {**model, "vocab": {token: ids[token] for token in order if token in vocab}, "merges": chosen},
    }
    return Pruned(content, unreachable)
