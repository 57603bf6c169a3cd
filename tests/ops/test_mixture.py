from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.artifacts.artifact import Artifact
from ops.config import MixtureConfig, MixtureStage, StoreConfig
from ops.mixture import MixtureError, cap_weights, largest_remainder, mix
from tests.builders import run_program
from tests.ops.stores import Document, store_of

WEIGHTS = st.lists(st.just(0.0) | st.floats(1e-6, 1), min_size=1, max_size=12).filter(lambda weights: sum(weights) > 1e-6).map(np.array)


@pytest.fixture
def store(tmp_path: Path) -> Artifact:
    """Tokens per bucket: web/q0 100, web/q4 300, books/q2 600."""
    return store_of(
        tmp_path / "inputs",
        {
            "web": [Document("low", (5,) * 99, quality=0), Document("high", (6,) * 299, quality=4)],
            "novels": [Document("book", (7,) * 599)],
        },
        StoreConfig(domains={"novels": "books"}),
    )


def mixture_of(tmp_path: Path, store: Artifact, **config: object) -> dict[str, object]:
    base = {"block_sequences": 100, "sequence_tokens": 10, "training_tokens": 1000, "epoch_cap": None}
    artifact = run_program(mix, MixtureConfig(**(base | config)), tmp_path / "mixture", store=store)  # type: ignore[arg-type]
    return artifact.read_json("mixture.json") | {"stats": artifact.stats}


def counts(mixture: dict[str, object], stage: int = 0) -> dict[str, int]:
    folders = [bucket["folder"] for bucket in mixture["buckets"]]  # type: ignore[attr-defined, index]
    return dict(zip(folders, mixture["stages"][stage]["sequences_per_block"], strict=True))  # type: ignore[index]


def test_by_default_each_bucket_is_read_in_proportion_to_its_tokens(tmp_path: Path, store: Artifact) -> None:
    mixture = mixture_of(tmp_path, store)
    assert counts(mixture) == {"train/books/q2": 60, "train/web/q0": 10, "train/web/q4": 30}
    assert mixture["stats"]["epochs"] == {"train/books/q2": 1, "train/web/q0": 1, "train/web/q4": 1}  # type: ignore[index]


def test_quality_multipliers_act_inside_a_domain_whose_weight_they_leave_alone(tmp_path: Path, store: Artifact) -> None:
    stage = MixtureStage(domain_weights={"web": 1, "books": 1}, quality_multipliers=(3, 1, 1, 1, 1))
    assert counts(mixture_of(tmp_path, store, stages=(stage,))) == {"train/books/q2": 50, "train/web/q0": 25, "train/web/q4": 25}


def test_a_domain_without_weight_is_left_out_and_listed(tmp_path: Path, store: Artifact) -> None:
    mixture = mixture_of(tmp_path, store, stages=(MixtureStage(domain_weights={"books": 1}),))
    assert counts(mixture) == {"train/books/q2": 100}
    assert mixture["stats"]["left_out"] == {"train/web/q0": 0.1, "train/web/q4": 0.3}  # type: ignore[index]


def test_the_epoch_cap_moves_the_excess_to_buckets_that_have_room(tmp_path: Path, store: Artifact) -> None:
    stage = MixtureStage(domain_weights={"web": 9, "books": 1})
    mixture = mixture_of(tmp_path, store, stages=(stage,), epoch_cap=2.0)
    epochs = mixture["stats"]["epochs"]  # type: ignore[index]
    assert epochs["train/web/q4"] == pytest.approx(2.0)
    assert epochs["train/web/q0"] == pytest.approx(2.0)
    assert epochs["train/books/q2"] == pytest.approx(200 / 600)


def test_a_run_longer_than_the_cap_allows_is_refused(tmp_path: Path, store: Artifact) -> None:
    with pytest.raises(MixtureError, match="raise epoch_cap"):
        mixture_of(tmp_path, store, epoch_cap=2.0, training_tokens=2001)


def test_a_weight_that_rounds_to_nothing_is_an_error_that_names_the_bucket(tmp_path: Path, store: Artifact) -> None:
    with pytest.raises(MixtureError, match=r"train/web/q0 \(0.1\) would get no sequence in a block of 3"):
        mixture_of(tmp_path, store, block_sequences=3)
    assert counts(mixture_of(tmp_path / "on purpose", store, block_sequences=3, min_bucket_weight=0.2)) == {
        "train/books/q2": 2,
        "train/web/q4": 1,
    }


def test_stages_change_weights_and_epochs_follow_the_time_spent_in_each(tmp_path: Path, store: Artifact) -> None:
    stages = (MixtureStage(domain_weights={"books": 1}), MixtureStage(start_sequence=100, domain_weights={"web": 1}))
    mixture = mixture_of(tmp_path, store, stages=stages, training_tokens=1400)
    assert counts(mixture, 0) == {"train/books/q2": 100, "train/web/q0": 0, "train/web/q4": 0}
    assert counts(mixture, 1) == {"train/books/q2": 0, "train/web/q0": 25, "train/web/q4": 75}
    assert mixture["stats"]["epochs"] == pytest.approx({"train/books/q2": 1000 / 600, "train/web/q0": 1.0, "train/web/q4": 1.0})  # type: ignore[index]


def test_an_unknown_domain_is_refused_with_the_known_ones(tmp_path: Path, store: Artifact) -> None:
    with pytest.raises(MixtureError, match=r"'cod' has a weight but no train tokens; the store has \['books', 'web'\]"):
        mixture_of(tmp_path, store, stages=(MixtureStage(domain_weights={"cod": 1}),))


@pytest.mark.parametrize("starts", [(1,), (0, 50), (0, 100, 100), (0, 200, 100)])
def test_stages_must_start_in_order_at_multiples_of_the_block(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="start at"):
        MixtureConfig(block_sequences=100, stages=tuple(MixtureStage(start_sequence=start) for start in starts))


@given(WEIGHTS, st.integers(1, 5000))
def test_rounding_keeps_the_total_and_stays_within_one(weights: np.ndarray, total: int) -> None:  # type: ignore[type-arg]
    rounded = largest_remainder(weights, total)
    assert rounded.sum() == total
    assert (np.abs(rounded - weights / weights.sum() * total) < 1 + 1e-6).all()


@settings(max_examples=300)
@given(WEIGHTS, st.lists(st.floats(0.01, 1), min_size=12, max_size=12))
def test_capped_weights_sum_to_one_keep_the_ceilings_and_the_ratios_below_them(weights: np.ndarray, ceilings: list[float]) -> None:  # type: ignore[type-arg]
    weights = weights / weights.sum()
    ceiling = np.array(ceilings[: len(weights)])
    room = ceiling[weights > 0].sum()
    assume(abs(room - 1) > 1e-9)  # on the edge either answer is right
    if room < 1:
        with pytest.raises(MixtureError):
            cap_weights(weights, ceiling)
        return
    capped = cap_weights(weights, ceiling)
    assert capped.sum() == pytest.approx(1)
    assert (capped <= ceiling + 1e-9).all()
    free = (capped < ceiling - 1e-9) & (weights > 1e-9)
    assert np.allclose(capped[free] / weights[free], (capped[free] / weights[free])[:1])
