"""`extends`: a profile says what differs, and everything else is somebody else's."""

from pathlib import Path

import pytest

from assets.profile import load_profile
from assets.profile_file import ProfileError, read_profile


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_profile_says_only_what_differs(tmp_path: Path):
    changed = load_profile(write(tmp_path, "mine.yaml", "extends: demo\nname: mine\nprograms: {tokenizer: {vocab_size: 8192}}\n"))
    demo = load_profile("demo")
    assert changed.name == "mine"
    assert changed.programs.tokenizer.vocab_size == 8192
    assert changed.programs.tokenizer.sample_bytes == demo.programs.tokenizer.sample_bytes
    assert changed.model_copy(update={"name": "demo", "programs": demo.programs}) == demo


def test_a_profile_may_extend_a_file_beside_it_that_extends_another(tmp_path: Path):
    write(tmp_path, "base.yaml", "a: {b: 1, c: 1, d: 1}\n")
    write(tmp_path, "middle.yaml", "extends: ./base.yaml\na: {c: 2, d: 2}\n")
    assert read_profile(write(tmp_path, "top.yaml", "extends: middle.yaml\na: {d: 3}\n")).values == {"a": {"b": 1, "c": 2, "d": 3}}


def test_lists_and_null_replace_what_they_override(tmp_path: Path):
    write(tmp_path, "base.yaml", "a: {names: [x, y], limit: {of: 4}}\n")
    top = write(tmp_path, "top.yaml", "extends: base.yaml\na: {names: [z], limit: null}\n")
    assert read_profile(top).values == {"a": {"names": ["z"], "limit": None}}


def test_a_section_marked_override_stands_alone(tmp_path: Path):
    write(tmp_path, "base.yaml", "sources: {one: {kind: files}, two: {kind: warc}}\n")
    top = write(tmp_path, "top.yaml", "extends: base.yaml\nsources: !override {three: {kind: files}}\n")
    assert read_profile(top).values == {"sources": {"three": {"kind": "files"}}}


def test_a_section_of_another_kind_takes_nothing_over(tmp_path: Path):
    write(tmp_path, "base.yaml", "backend: {kind: slurm, account: ours, shared: 1}\n")
    other = write(tmp_path, "other.yaml", "extends: base.yaml\nbackend: {kind: ray, address: here}\n")
    assert read_profile(other).values == {"backend": {"kind": "ray", "address": "here"}}
    same = write(tmp_path, "same.yaml", "extends: base.yaml\nbackend: {account: theirs}\n")
    assert read_profile(same).values == {"backend": {"kind": "slurm", "account": "theirs", "shared": 1}}


def test_a_variable_is_looked_up_only_if_its_value_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SEAWAY_NOT_SET", raising=False)
    write(tmp_path, "base.yaml", "root: ${SEAWAY_NOT_SET}\nother: 1\n")
    assert read_profile(write(tmp_path, "top.yaml", "extends: base.yaml\nroot: here\n")).values == {"root": "here", "other": 1}
    with pytest.raises(ProfileError, match=r"base\.yaml: \$\{SEAWAY_NOT_SET\} is not set; export SEAWAY_NOT_SET"):
        read_profile(write(tmp_path, "bare.yaml", "extends: base.yaml\n"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("extends: [demo]\n", r"extends: name one profile, such as demo \(found \"\['demo'\]\"\)"),
        ("extends: nowhere\n", r"profile 'nowhere': can't read .*built in are demo"),
        ("extends: ./top.yaml\n", r"top\.yaml: extends itself; remove one 'extends' of the circle"),
        ("name: !override x\n", r"not YAML: !override stands before a section"),
        ("- a\n", r"not a profile: its top level must be sections"),
        ("", r"not a profile: its top level must be sections"),
        ("a: [\n", r"top\.yaml: not YAML"),
    ],
)
def test_a_file_that_can_not_be_a_profile_says_why(tmp_path: Path, text: str, answer: str):
    with pytest.raises(ProfileError, match=answer):
        read_profile(write(tmp_path, "top.yaml", text))
