"""From text to token ids, exactly as lm-eval's causal models do it: where a pair is cut, what begins an empty context, what is
dropped of a text that is too long. Numbers of two harnesses differ by these rules more often than by anything else."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.eval.tasks.language_model import LanguageModel


@dataclass(frozen=True)
class Continuation:
    """Token ids to score: each target is what follows one of the last inputs.

    Attributes:
        inputs: at most as many as the model reads.
        targets: what follows the last `len(targets)` inputs.
    """

    inputs: tuple[int, ...]
    targets: tuple[int, ...]


class EmptyContinuationError(ValueError):
    """A continuation that is no token: it has no probability. An item's answer is empty, or melts into its context."""


def encode_pair(model: LanguageModel, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Token ids of both parts. They are tokenised together, so that a token may not begin in one and end in the other; space at the
    context's end belongs to the continuation."""
    if not context:
        ids = model.encode(continuation)
        return (ids[:1], ids[1:]) if ids[:1] == [model.end_id] else ([model.end_id], ids)
    stripped = context.rstrip()
    continuation = context[len(stripped) :] + continuation
    whole, head = model.encode(stripped + continuation), model.encode(stripped)
    return head, whole[len(head) :]


def continuation_of(model: LanguageModel, context: Sequence[int], continuation: Sequence[int]) -> Continuation:
    """What is scored of a pair. The beginning is dropped of one that is too long; a continuation is never cut.

    Raises:
        EmptyContinuationError: the continuation has no token.
        ValueError: it has more tokens than the model reads.
    """
    if not continuation:
        raise EmptyContinuationError("the continuation has no token, so it has no probability; give the item an answer that is a text")
    if len(continuation) > model.context_tokens:
        raise ValueError(
            f"a continuation has {len(continuation)} tokens and the model reads {model.context_tokens}; "
            "shorten the answer, or evaluate a model of a longer context"
        )
    whole = [*(context or [model.end_id]), *continuation][-(model.context_tokens + 1) :]
    return Continuation(tuple(whole[:-1]), tuple(continuation))


def rolling(model: LanguageModel, text: str) -> list[Continuation]:
    """A text of any length, each token a target once: the first window begins with the end-of-text token, each later one is full,
    so that every target has as much before it as the model can read or as there is."""
    return [
        Continuation(tuple(inputs), tuple(targets)) for inputs, targets in windows(model.encode(text), model.end_id, model.context_tokens)
    ]


def windows(ids: Sequence[int], start: int, length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Windows of at most `length` inputs, and the targets that follow the last of them."""
    done = 0
    while done < len(ids):
        end = min(done + length, len(ids))
        inputs = [start, *ids[: end - 1]] if end <= length else list(ids[end - length - 1 : end - 1])
        yield inputs, list(ids[done:end])
        done = end


def prompt_of(model: LanguageModel, text: str, max_new_tokens: int) -> list[int]:
    """Token ids of a prompt; its beginning is dropped if the answer would have no room behind it.

    Raises:
        ValueError: the answer alone may be as long as what the model reads.
    """
    room = model.context_tokens - max_new_tokens
    if room < 1:
        raise ValueError(
            f"max_gen_toks = {max_new_tokens} leaves no room for a prompt in the {model.context_tokens} tokens of the model; lower it"
        )
    return (model.encode(text) or [model.end_id])[-room:]
