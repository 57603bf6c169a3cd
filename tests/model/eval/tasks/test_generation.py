"""Answers end where they should, whatever is written beside them; the oracle is the sampler that writes to the end."""

from pathlib import Path

import pytest

from model.eval.tasks.generation import STRIDE_TOKENS, cut, generate
from model.eval.tasks.language_model import LanguageModel, of_folder
from model.eval.tasks.requests import prompt_of
from model.generate import sample
from tests.model.eval.tasks.released import CONTEXT_TOKENS, release

TEXTS = ["The duck", "Question: which of these is a bird?", "東京", "She sells 3 eggs for 4 dollars each, so she has"]
NEW_TOKENS = STRIDE_TOKENS + 9


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return of_folder(release(tmp_path_factory.mktemp("release")))


def to_the_end(model: LanguageModel, text: str) -> str:
    ids = sample(
        model.params, model.router_bias, model.config, model.encode(text), NEW_TOKENS, temperature=0.0, seed=0, end_id=model.end_id
    )
    return model.decode(ids)


@pytest.mark.parametrize("batch_tokens", [1, 100_000])
def test_answers_are_those_of_the_sampler_whatever_the_batch(model: LanguageModel, batch_tokens: int) -> None:
    prompts = [model.encode(text) for text in TEXTS]
    assert generate(model, prompts, max_new_tokens=NEW_TOKENS, until=(), batch_tokens=batch_tokens) == [to_the_end(model, t) for t in TEXTS]


def test_an_answer_ends_before_its_stop_text_though_it_lies_across_two_strides(model: LanguageModel) -> None:
    whole = to_the_end(model, TEXTS[0])
    edge = len(model.decode(model.encode(whole)[:STRIDE_TOKENS]))
    for stop in (whole[:2], whole[edge - 2 : edge + 2], whole[-3:]):
        found = generate(model, [model.encode(TEXTS[0])], max_new_tokens=NEW_TOKENS, until=(stop,), batch_tokens=4096)
        assert found == [whole.split(stop)[0]]


def test_stop_texts_are_applied_in_turn_as_lm_eval_does() -> None:
    from lm_eval.models.utils import postprocess_generated_text

    for until in ([], ["b"], ["d", "b"], ["cd", "bc"], ["bc", "cd"], [""]):
        assert cut("abcdabcd", until) == postprocess_generated_text("abcdabcd", until, None)


def test_a_long_prompt_loses_its_beginning_and_an_answer_needs_room(model: LanguageModel) -> None:
    ids = model.encode("She sells 3 eggs. " * 40)
    assert prompt_of(model, "She sells 3 eggs. " * 40, 30) == ids[-(CONTEXT_TOKENS - 30) :]
    assert prompt_of(model, "", 30) == [model.end_id]
    with pytest.raises(ValueError, match="leaves no room"):
        prompt_of(model, "x", CONTEXT_TOKENS)


def test_a_release_is_read_from_its_folder(tmp_path: Path) -> None:
    assert of_folder(release(tmp_path)).context_tokens == CONTEXT_TOKENS
    assert of_folder(tmp_path, context_tokens=40).context_tokens == 40
