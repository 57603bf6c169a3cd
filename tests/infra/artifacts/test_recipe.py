"""Recipes: pinned by values computed elsewhere, moved by what changes the result, and by nothing else."""

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from infra.artifacts.config import ProgramConfig, execution_only, identity_of
from infra.artifacts.manifest import FileEntry, digest_of
from infra.artifacts.recipe import payload_of, recipe_of


class Bands(BaseModel):
    model_config = ConfigDict(frozen=True)

    count: int = 26
    threads: int = execution_only(2)


class DedupConfig(ProgramConfig):
    threshold: float = 0.8
    scopes: tuple[str, ...] = ("document",)
    bands: Bands = Bands()
    workers: int = execution_only(4)


INPUTS: dict[str, str | dict[str, str]] = {"minhash": {"web": "a" * 64, "books": "b" * 64}, "index": "c" * 64}


def test_a_recipe_is_sixteen_hex_of_the_payloads_sha256() -> None:
    # printf '%s' TEXT | sha256sum | cut -c1-16, where TEXT is what a person writes down for this config
    text = (
        '{"config":{"bands":{"count":26},"scopes":["document"],"threshold":0.8},'
        f'"inputs":{{"index":"{"c" * 64}","minhash":{{"books":"{"b" * 64}","web":"{"a" * 64}"}}}},'
        '"program":"ops.dedup:fuzzy","version":"3"}'
    )
    recipe = recipe_of(payload_of("ops.dedup:fuzzy", "3", DedupConfig(), INPUTS))
    assert recipe == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert recipe == "3258fcf551bf9b29"


def test_a_digest_is_the_sha256_of_the_sorted_rows() -> None:
    # printf '%s' '[["a/b.bin",3,"00ff"],["c",0,"11"]]' | sha256sum
    files = [FileEntry(name="c", size=0, sha256="11"), FileEntry(name="a/b.bin", size=3, sha256="00ff")]
    assert digest_of(files) == digest_of(reversed(files)) == "4a68595a61929e6c6ac391a8370ef9e7be18e1749c9120126f60d07f56d855ab"


@pytest.mark.parametrize(
    "config", [DedupConfig(workers=64), DedupConfig(bands=Bands(threads=64)), DedupConfig(threshold=0.8, scopes=("document",))]
)
def test_execution_and_spelled_out_defaults_do_not_move_a_recipe(config: DedupConfig) -> None:
    assert recipe_of(payload_of("p", "1", config, {})) == recipe_of(payload_of("p", "1", DedupConfig(), {}))


def test_a_changed_default_does_not_move_a_recipe_that_spells_the_old_value_out() -> None:
    class NewDefaults(ProgramConfig):
        workers: int = execution_only(128)
        bands: Bands = Bands(count=52)
        scopes: tuple[str, ...] = ("paragraph",)
        threshold: float = 0.7

    spelled_out = NewDefaults(threshold=0.8, scopes=("document",), bands=Bands(count=26))
    assert recipe_of(payload_of("p", "1", spelled_out, {})) == recipe_of(payload_of("p", "1", DedupConfig(), {}))
    assert recipe_of(payload_of("p", "1", NewDefaults(), {})) != recipe_of(payload_of("p", "1", DedupConfig(), {}))


@pytest.mark.parametrize(
    "other",
    [
        payload_of("q", "1", DedupConfig(), INPUTS),
        payload_of("p", "2", DedupConfig(), INPUTS),
        payload_of("p", "1", DedupConfig(threshold=0.81), INPUTS),
        payload_of("p", "1", DedupConfig(bands=Bands(count=27)), INPUTS),
        payload_of("p", "1", DedupConfig(), INPUTS | {"index": "d" * 64}),
        payload_of("p", "1", DedupConfig(), INPUTS | {"minhash": {"web": "a" * 64}}),
        payload_of("p", "1", DedupConfig(), INPUTS | {"minhash": {"web": "b" * 64, "books": "a" * 64}}),
    ],
)
def test_whatever_changes_the_result_moves_the_recipe(other: dict[str, Any]) -> None:
    assert recipe_of(other) != recipe_of(payload_of("p", "1", DedupConfig(), INPUTS))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(item, order)) for key, item in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), json_values, max_size=5), st.randoms(use_true_random=False))
def test_key_order_never_moves_a_recipe(payload: dict[str, Any], order: random.Random) -> None:
    assert recipe_of(shuffled(payload, order)) == recipe_of(payload)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_a_payload_that_went_through_a_manifest_has_the_same_recipe(payload: dict[str, Any]) -> None:
    assert recipe_of(json.loads(json.dumps(payload))) == recipe_of(payload)


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 1))
def test_identity_is_blind_to_execution_at_every_depth(workers: int, threads: int, threshold: float) -> None:
    config = DedupConfig(threshold=threshold, bands=Bands(threads=threads), workers=workers)
    assert identity_of(config) == {"threshold": threshold, "scopes": ["document"], "bands": {"count": 26}}


def test_a_value_without_a_canonical_form_is_refused() -> None:
    class Loose(ProgramConfig):
        anything: Any = None

    with pytest.raises(TypeError, match="a config value of type object has no canonical JSON form"):
        identity_of(Loose(anything=object()))
    with pytest.raises(ValueError, match="not JSON compliant"):
        recipe_of(payload_of("p", "1", Loose(anything=float("nan")), {}))
