"""A plan names what differs, field by field, in words that a person can act on."""

from assets.plan import differences, flatten
from infra.artifacts.manifest import Manifest


def manifest(payload: dict[str, object]) -> Manifest:
    return Manifest(recipe="r", payload=payload, digest="d", directory="attempt-x", files=(), stats={})


def test_a_changed_threshold_is_named_with_both_values():
    before = manifest({"program": "fuzzy", "version": "1", "config": {"verify": {"containment": 1.0}}, "inputs": {}})
    after = {"program": "fuzzy", "version": "1", "config": {"verify": {"containment": 0.9}}, "inputs": {}}
    assert differences(before, after) == ("config.verify.containment: 1.0 -> 0.9",)


def test_an_input_that_came_is_named_and_its_digest_shortened():
    before = manifest({"inputs": {"normalized": {"a": "0" * 64}}})
    after = {"inputs": {"normalized": {"a": "0" * 64, "b": "1" * 64}}}
    assert differences(before, after) == ("inputs.normalized.b: absent -> 111111111111...",)


def test_equal_payloads_do_not_differ():
    payload = {"config": {"a": [1, 2, {"b": None}]}}
    assert differences(manifest(payload), payload) == ()


def test_flattening_keeps_every_leaf():
    assert flatten({"a": {"b": [1, {"c": 2}]}, "d": None}) == {"a.b.0": 1, "a.b.1.c": 2, "d": None}
