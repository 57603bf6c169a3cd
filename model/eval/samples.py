"""Text a model writes: what a person looks at first, and a metric sees last."""

from collections.abc import Iterator, Sequence

from jax import Array
from pydantic import BaseModel, ConfigDict
from tokenizers import Tokenizer

from model.architecture import ModelConfig
from model.generate import sample
from model.parameters import Params
from ops.tokenizer import END_OF_TEXT_ID


class Sample(BaseModel):
    """One row of `samples.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    text: str  # the continuation alone
    tokens: int
    ended: bool  # whether the model closed the document itself


def samples(
    params: Params,
    router_bias: Array,
    model: ModelConfig,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> Iterator[Sample]:
    """Continue each prompt; the n-th draws from seed + n, so a prompt that is added moves no other.

    A prompt stands at the start of a document, with nothing before it: so documents stand in training.
    """
    for number, prompt in enumerate(prompts):
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        new = sample(params, router_bias, model, ids, max_new_tokens, temperature=temperature, seed=seed + number, end_id=END_OF_TEXT_ID)
        yield Sample(prompt=prompt, text=tokenizer.decode(new), tokens=len(new), ended=len(new) < max_new_tokens)
