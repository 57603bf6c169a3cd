"""Our generator as a serving engine: the text that direct generation gives, whoever asks beside, and nothing for those who left."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.serving.openai_api import Answer, RequestDeclined
from model.generate import sample
from model.load import load_release
from model.serving.engine import DEFAULT_MAX_TOKENS, ModelEngine
from model.serving.load import released
from ops.tokenizer import END_OF_TEXT_ID
from tests.infra.dispatch.builders import wait_for
from tests.model.speaker import CONTEXT_TOKENS, VOCABULARY, byte_tokenizer, write_speaker

SLOTS = 3
TOKENIZER = byte_tokenizer()


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speaker(tmp_path_factory.mktemp("speaker"))


@pytest.fixture(scope="session")
def engine(speaker: Path) -> Iterator[ModelEngine]:
    made = released(str(speaker), str(SLOTS))
    yield made
    made.close()


def silent(pieces: Sequence[str]) -> None:
    """Nobody listens; everybody waits."""


def asked(prompt: Any, **fields: Any) -> dict[str, Any]:
    usual = {"temperature": 0.0, "top_p": 1.0, "seed": 0, "max_tokens": 12, "stop": (), "stream": False, "listed": None}
    return {"prompt": prompt, **usual, **fields}


def direct(speaker: Path, prompt: str, new: int, **options: Any) -> list[int]:
    release = load_release(speaker)
    ids = TOKENIZER.encode(prompt, add_special_tokens=False).ids
    settings = {"temperature": 0.0, "seed": 0, "end_id": END_OF_TEXT_ID, **options}
    return sample(release.params, release.router_bias, release.config, ids, new, **settings)


def test_a_greedy_answer_is_direct_generation(engine: ModelEngine, speaker: Path) -> None:
    answer = engine.generate(asked("the tide"), silent)
    assert answer.text == TOKENIZER.decode(direct(speaker, "the tide", 12))
    assert (answer.prompt_tokens, answer.completion_tokens) == (len(TOKENIZER.encode("the tide").ids), 12)
    assert answer.finish_reason == "length"


def test_a_seeded_answer_is_direct_generation_with_that_seed(engine: ModelEngine, speaker: Path) -> None:
    for seed in (0, 7, 2**31 - 1):
        answer = engine.generate(asked("the sea", temperature=1.0, seed=seed), silent)
        assert answer.text == TOKENIZER.decode(direct(speaker, "the sea", 12, temperature=1.0, seed=seed))


def test_answers_are_the_same_whatever_the_batch(engine: ModelEngine) -> None:
    bodies = [
        asked("the " * (1 + n % 7), temperature=float(n % 2), top_p=1.0 if n % 3 else 0.8, seed=n, max_tokens=5 + n, listed=2)
        for n in range(12)
    ]
    one_by_one = [engine.generate(body, silent) for body in bodies]
    with ThreadPoolExecutor(12) as pool:  # four times as many as there are slots
        together = list(pool.map(lambda body: engine.generate(body, silent), reversed(bodies)))
    for batched, alone in zip(together[::-1], one_by_one, strict=True):
        assert batched.model_copy(update={"logprobs": None}) == alone.model_copy(update={"logprobs": None})
        ours, theirs = ([one.logprob for one in answer.logprobs or ()] for answer in (batched, alone))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)  # another slot is another row of a matrix: its sums may round differently


def test_pieces_of_a_stream_are_the_same_each_time_and_join_to_the_text(engine: ModelEngine) -> None:
    heard: list[list[str]] = [[], []]
    answers = [engine.generate(asked("and", temperature=1.0, seed=4, max_tokens=30, stream=True), pieces.extend) for pieces in heard]
    assert heard[0] == heard[1]
    assert "".join(heard[0]) == answers[0].text
    assert len(heard[0]) > 5


def test_a_stop_string_ends_an_answer_and_is_not_in_it(engine: ModelEngine) -> None:
    free = engine.generate(asked("the tide", max_tokens=40), silent)
    assert len(free.text) > 12
    stop = free.text[8:11]
    answer = engine.generate(asked("the tide", max_tokens=40, stop=(stop,)), silent)
    assert answer.text == free.text[: free.text.index(stop)]
    assert answer.finish_reason == "stop"
    assert answer.completion_tokens < free.completion_tokens


def test_the_end_token_ends_an_answer_and_is_not_counted(engine: ModelEngine, speaker: Path) -> None:
    found = next(
        (seed, tokens)
        for seed in range(200)
        if len(tokens := direct(speaker, "the tide", 60, temperature=1.5, seed=seed)) < 60 and len(tokens) > 1
    )
    answer = engine.generate(asked("the tide", temperature=1.5, seed=found[0], max_tokens=60), silent)
    assert (answer.finish_reason, answer.completion_tokens) == ("stop", len(found[1]))
    assert answer.text == TOKENIZER.decode(found[1])


def test_log_probabilities_name_each_token_and_the_likeliest_beside_it(engine: ModelEngine) -> None:
    answer = engine.generate(asked("the tide", listed=3), silent)
    assert answer.logprobs is not None
    assert len(answer.logprobs) == 12
    for one in answer.logprobs:
        assert one.top[0] == (one.token, one.logprob), "greedy: the drawn token is the likeliest"
        assert [logprob for _, logprob in one.top] == sorted((logprob for _, logprob in one.top), reverse=True)
        assert sum(np.exp(logprob) for _, logprob in one.top) <= 1 + 1e-6
    assert [one.offset for one in answer.logprobs] == sorted(one.offset for one in answer.logprobs)
    assert engine.generate(asked("the tide"), silent).logprobs is None


def test_token_ids_are_a_prompt_too(engine: ModelEngine) -> None:
    ids = TOKENIZER.encode("the tide").ids
    assert engine.generate(asked(ids), silent) == engine.generate(asked("the tide"), silent)
    with pytest.raises(RequestDeclined, match=f"token id {VOCABULARY} is none of this model's {VOCABULARY}"):
        engine.generate(asked([5, VOCABULARY]), silent)


def test_a_special_token_spelled_out_in_a_prompt_is_text(engine: ModelEngine) -> None:
    spelled = engine.generate(asked("<|endoftext|>"), silent)
    assert spelled.prompt_tokens == len("<|endoftext|>")


def test_a_conversation_is_its_prompt_without_the_space_before_the_answer(engine: ModelEngine) -> None:
    chat = {name: value for name, value in asked("").items() if name != "prompt"}
    answer = engine.generate({**chat, "messages": [{"role": "user", "content": "the tide?"}]}, silent)
    plain = engine.generate(asked("User: the tide?\n\nAssistant:"), silent)
    assert answer.text == plain.text.removeprefix(" ")


def test_what_does_not_fit_the_context_is_declined_with_the_numbers(engine: ModelEngine) -> None:
    long = "z" * CONTEXT_TOKENS
    with pytest.raises(RequestDeclined, match=f"context is {CONTEXT_TOKENS} tokens .* {CONTEXT_TOKENS} of the prompt") as declined:
        engine.generate(asked(long, max_tokens=None), silent)
    assert declined.value.param == "prompt"
    with pytest.raises(RequestDeclined, match="and 120 asked for") as declined:
        engine.generate(asked("z" * 10, max_tokens=120), silent)
    assert declined.value.param == "max_tokens"


def test_an_unlimited_answer_fills_the_context_and_no_more(engine: ModelEngine) -> None:
    answer = engine.generate(asked("z" * 40, max_tokens=None, temperature=0.0), silent)
    assert CONTEXT_TOKENS - 40 < DEFAULT_MAX_TOKENS
    assert answer.completion_tokens == CONTEXT_TOKENS - 40 or answer.finish_reason == "stop"


def test_an_empty_prompt_begins_a_document(engine: ModelEngine, speaker: Path) -> None:
    release = load_release(speaker)
    tokens = sample(
        release.params, release.router_bias, release.config, [END_OF_TEXT_ID], 12, temperature=0.0, seed=0, end_id=END_OF_TEXT_ID
    )
    assert engine.generate(asked(""), silent).text == TOKENIZER.decode(tokens)


def test_a_slot_is_free_again_once_nobody_waits(engine: ModelEngine) -> None:
    """As many clients leave as there are slots; others are answered."""
    begun = threading.Semaphore(0)

    def leave(pieces: Sequence[str]) -> None:
        begun.release()
        raise ConnectionAbortedError

    def ask(seed: int) -> Answer | None:
        try:
            return engine.generate(asked("z", max_tokens=100, temperature=1.0, seed=seed), leave)
        except ConnectionAbortedError:
            return None

    with ThreadPoolExecutor(SLOTS) as pool:
        assert list(pool.map(ask, range(SLOTS))) == [None] * SLOTS
    assert engine.generate(asked("the tide", max_tokens=3), silent).completion_tokens == 3


def test_a_step_that_fails_fails_its_texts_and_no_others(speaker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import model.serving.engine as module

    engine, step, fail = released(str(speaker), str(SLOTS)), module.step, threading.Event()

    def failing(*arguments: Any) -> Any:
        if fail.is_set():
            raise MemoryError("the device is full")
        return step(*arguments)

    monkeypatch.setattr(module, "step", failing)
    try:
        before = engine.generate(asked("the tide"), silent)
        fail.set()
        with pytest.raises(RuntimeError, match="MemoryError: the device is full"):
            engine.generate(asked("the tide"), silent)
        fail.clear()
        assert engine.generate(asked("the tide"), silent) == before
    finally:
        engine.close()


def test_a_folder_that_is_no_release_is_refused_by_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json: it is no release"):
        released(str(tmp_path), "1")


def test_closing_ends_the_thread(speaker: Path) -> None:
    before = threading.active_count()
    engine = released(str(speaker), str(SLOTS))
    engine.generate(asked("a", max_tokens=1), silent)
    engine.close()
    wait_for(lambda: threading.active_count() == before, "the thread ends")
