"""Log-probabilities and greedy flags, against full logits of one sequence at a time and against lm-eval's own rules."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.eval.tasks.language_model import LanguageModel, of_folder
from model.eval.tasks.likelihood import TokenScores, bucket_of, score
from model.eval.tasks.requests import Continuation, EmptyContinuationError, continuation_of, encode_pair, rolling, windows
from model.load import next_token_logits
from tests.model.eval.tasks.released import CONTEXT_TOKENS, SENTENCES, release

PAIRS = [
    ("The duck", " swims on a pond"),
    ("The duck ", "swims"),  # the space belongs to the continuation
    ("", "She sells 3 eggs"),
    ("Question: which of these is a bird? Answer:", " a duck"),
    ("Question: which of these is a bird? Answer:", " 東"),
    ("She sells 3 eggs for 4 dollars each. " * 12, " The answer is 12"),  # longer than the model reads
    (" \n", "x"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return of_folder(release(tmp_path_factory.mktemp("release")))


def requests_of(model: LanguageModel) -> list[Continuation]:
    return [continuation_of(model, *encode_pair(model, context, continuation)) for context, continuation in PAIRS]


def logits_of(model: LanguageModel, ids: Sequence[int]) -> NDArray[np.float64]:
    """All logits of one sequence. What is behind it is of no consequence to a causal model, and one length compiles once."""
    tokens = jnp.asarray([[*ids, *[5] * (CONTEXT_TOKENS - len(ids))]], jnp.int32)
    found = next_token_logits(model.params, model.router_bias, model.config, tokens, jnp.zeros_like(tokens))
    return np.asarray(found, np.float64)[0, : len(ids)]


def alone(model: LanguageModel, request: Continuation) -> TokenScores:
    """The oracle: one sequence at a time, all of its logits, the softmax in float64."""
    last = logits_of(model, request.inputs)[-len(request.targets) :]
    shifted = last - last.max(axis=1, keepdims=True)
    nats = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(request.targets)), list(request.targets)]
    return TokenScores(nats.astype(np.float32), last.argmax(axis=1) == np.array(request.targets))


@pytest.mark.parametrize(("batch_tokens", "count"), [(1, 2), (512, len(PAIRS))])
def test_scores_are_those_of_each_sequence_alone_whatever_the_batch(model: LanguageModel, batch_tokens: int, count: int) -> None:
    requests = requests_of(model)[:count]
    for request, found in zip(requests, score(model, requests, batch_tokens), strict=True):
        expected = alone(model, request)
        np.testing.assert_allclose(found.nats, expected.nats, atol=2e-4)  # float32 sums in another order; logits reach 20
        assert found.is_likeliest.tolist() == expected.is_likeliest.tolist()


def test_what_the_model_would_write_is_greedy_and_one_token_else_is_not(model: LanguageModel) -> None:
    context = model.encode("The duck")
    written: list[int] = []
    for _ in range(6):
        tokens = jnp.asarray([[*context, *written]], jnp.int32)
        written.append(
            int(next_token_logits(model.params, model.router_bias, model.config, tokens, jnp.zeros_like(tokens))[0, -1].argmax())
        )
    changed = [*written[:3], (written[3] + 1) % 300, *written[4:]]
    greedy, other = score(model, [continuation_of(model, context, written), continuation_of(model, context, changed)], 512)
    assert greedy.is_likeliest.all()
    assert other.is_likeliest.tolist()[:4] == [True, True, True, False]


def test_continuations_of_one_token_share_one_sequence(model: LanguageModel) -> None:
    heard: list[tuple[int, int]] = []
    context = model.encode("The answer is")
    requests = [continuation_of(model, context, [target]) for target in range(40, 60)]
    together = score(model, requests, 512, lambda done, total: heard.append((done, total)))
    assert heard == [(1, 1)]
    for request, found in zip(requests, together, strict=True):
        np.testing.assert_allclose(found.nats, alone(model, request).nats, atol=2e-4)


def test_a_long_context_loses_its_beginning_and_a_continuation_is_never_cut(model: LanguageModel) -> None:
    request = continuation_of(model, list(range(2, 300)), [7, 8, 9])
    assert request.inputs == (*range(300 - CONTEXT_TOKENS + 2, 300), 7, 8)
    assert request.targets == (7, 8, 9)
    with pytest.raises(ValueError, match=f"{CONTEXT_TOKENS + 1} tokens and the model reads {CONTEXT_TOKENS}"):
        continuation_of(model, [2], [3] * (CONTEXT_TOKENS + 1))


def test_a_continuation_without_a_token_is_refused(model: LanguageModel) -> None:
    with pytest.raises(EmptyContinuationError):
        continuation_of(model, [2], [])


@given(ids=st.lists(st.integers(2, 50), max_size=60), length=st.integers(1, 20))
@settings(deadline=None)
def test_windows_are_those_of_lm_eval(ids: list[int], length: int) -> None:
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    theirs = [make_disjoint_window(pair) for pair in get_rolling_token_windows(ids, 0, length, 1)]
    ours = [(inputs[: len(inputs) - len(targets) + 1], targets) for inputs, targets in windows(ids, 0, length)]
    assert ours == [(list(context), list(targets)) for context, targets in theirs]


def test_a_text_longer_than_the_model_is_scored_once_a_token(model: LanguageModel) -> None:
    text = SENTENCES[0] * 8
    found = rolling(model, text)
    assert len(found) > 1
    assert [target for window in found for target in window.targets] == model.encode(text)
    assert {len(window.inputs) for window in found} == {CONTEXT_TOKENS}


@given(context=st.text(alphabet="ab \n東", max_size=12), continuation=st.text(alphabet="ab \n東", min_size=1, max_size=12))
@settings(deadline=None, max_examples=200)
def test_pairs_are_cut_where_lm_eval_cuts_them(model: LanguageModel, context: str, continuation: str) -> None:
    from model.eval.tasks.harness import HarnessModel

    harness = HarnessModel(model, 512)
    asked: list[tuple[list[int], list[int]]] = []
    harness._loglikelihood_tokens = lambda requests, **_: asked.extend((a, b) for _, a, b in requests)
    harness.loglikelihood([type("Request", (), {"args": (context, continuation)})()], disable_tqdm=True)
    assert asked == [encode_pair(model, context, continuation)]


def test_buckets_cover_every_size_and_are_at_most_half_empty() -> None:
    for size in range(1, 3000):
        bucket = bucket_of(size)
        assert bucket >= size
        assert bucket < max(65, 2 * size)
    assert {bucket_of(size, 96) for size in range(65, 97)} == {96}
