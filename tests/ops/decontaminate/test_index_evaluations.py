"""The evaluation index: what goes in, whose it is, and when a build must fail."""

import gzip
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from ops.decontaminate.config import EvaluationNgramsConfig, EvaluationSet
from ops.decontaminate.evaluations import EvaluationError, items_of, observe, texts_of
from ops.decontaminate.index import index_evaluations
from ops.decontaminate.lookup import PassageIndex
from ops.hashing import definition
from tests.builders import run_program
from tests.ops.decontaminate.items import evaluation_set, prose
from tests.ops.normalized import normalized


def build(directory: Path, *sets: EvaluationSet, **fields: object) -> PassageIndex:
    config = EvaluationNgramsConfig.model_validate({"evaluations": sets, **fields})
    return PassageIndex.read(run_program(index_evaluations, config, directory / "index", normalized={}))


def features_of(text: str) -> set[int]:
    """Of a text of lower-case words: every window of 13, or the whole where it is shorter."""
    return set(definition.windows(definition.word_units(text), 13))


def owners_of(index: PassageIndex) -> dict[int, set[str]]:
    """Feature -> the evaluations that have it; heads, which nobody has, are left out."""
    evaluation = index.passages["evaluation"].to_pylist()
    found = {}
    for n, feature in enumerate(index.features.tolist()):
        owners = index.owners[index.owner_offsets[n] : index.owner_offsets[n + 1]]
        if len(owners):
            found[feature] = {index.evaluations[evaluation[owner]] for owner in owners}
    return found


def test_the_index_is_the_sorted_set_of_all_features_with_their_owners(tmp_path: Path) -> None:
    texts = {"one": [prose(1, 30), "a short question here"], "two": [prose(1, 30), prose(2, 20) + "\n\n" + prose(3, 25), prose(4, 12)]}
    index = build(tmp_path, *(evaluation_set(tmp_path / name, name, rows) for name, rows in texts.items()))
    owners: dict[int, set[str]] = {}
    for name, rows in texts.items():
        for text in rows:
            for paragraph in text.split("\n\n"):
                for feature in features_of(paragraph):
                    owners.setdefault(feature, set()).add(name)
    assert owners_of(index) == owners
    assert index.features.tolist() == sorted(set(index.features.tolist()))


def test_a_shared_feature_weighs_less_for_each_passage(tmp_path: Path) -> None:
    start = prose(1, 13)
    index = build(tmp_path, evaluation_set(tmp_path / "e", "quiz", [start, *(f"{start} {prose(n, 1)}" for n in (2, 3))]))
    place = index.features.tolist().index(next(iter(features_of(start))))
    weights = index.weights[index.owner_offsets[place] : index.owner_offsets[place + 1]]
    assert [weight / index.weights.max() for weight in weights] == [1 / 3] * 3


def test_what_too_many_items_share_guards_nobody_and_is_counted(tmp_path: Path) -> None:
    start = prose(1, 20)
    rows = [f"{start} {prose(100 + n, 2)}" for n in range(17)] + ["the same question again"] * 17 + ["another question entirely here"] * 16
    folder = tmp_path / "e"
    config = EvaluationNgramsConfig(evaluations=(evaluation_set(folder, "quiz", rows),))
    stats = run_program(index_evaluations, config, tmp_path / "out", normalized={}).stats["evaluations"]["quiz"]
    assert (stats["items"], stats["texts"], stats["passages"], stats["guarded"]) == (50, 19, 19, 18)
    index = build(tmp_path, evaluation_set(folder, "quiz", rows))
    assert not features_of(start) & set(owners_of(index))


def test_short_paragraphs_count_only_where_an_item_has_nothing_longer(tmp_path: Path) -> None:
    long, short = prose(1, 30), ["choose one of these", "all of the above"]
    index = build(tmp_path, evaluation_set(tmp_path / "e", "quiz", ["\n\n".join([short[0], long]), "\n\n".join(short)]))
    assert set(owners_of(index)) == features_of(long) | features_of(" ".join(short))


def test_a_short_item_of_function_words_alone_is_everybodys_and_counted(tmp_path: Path) -> None:
    rows = ["Who are you?", "Q: What do you do?\nA:", "Who is Ada?", " ".join(["who are you"] * 5), "que es lo que no es"]
    config = EvaluationNgramsConfig(evaluations=(evaluation_set(tmp_path / "e", "quiz", rows),))
    stats = run_program(index_evaluations, config, tmp_path / "out", normalized={}).stats["evaluations"]["quiz"]
    assert (stats["items"], stats["commonplace"]) == (5, 3)
    index = build(tmp_path, config.evaluations[0])
    guarded = [index.passages["item"][owner].as_py() for owner in sorted(set(index.owners.tolist()))]
    assert guarded == ["items.jsonl:2", "items.jsonl:3", "items.jsonl:4"], "with its labels the second is no common phrase"


def test_missing_required_sets_fail_the_build_and_are_all_named(tmp_path: Path) -> None:
    sets = [EvaluationSet(name=name, root=str(tmp_path / name), fields=("q",)) for name in ("gone", "lost")]
    with pytest.raises(EvaluationError, match=r"gone has no file .*lost has no file .*required: false"):
        build(tmp_path, *sets)


def test_a_missing_optional_set_is_listed(tmp_path: Path) -> None:
    config = EvaluationNgramsConfig(evaluations=(EvaluationSet(name="gone", root=str(tmp_path / "no"), fields=("q",), required=False),))
    assert run_program(index_evaluations, config, tmp_path / "out", normalized={}).stats["missing"] == ["gone"]


def test_a_required_set_whose_fields_hold_no_text_fails_the_build(tmp_path: Path) -> None:
    wrong = evaluation_set(tmp_path / "e", "quiz", [prose(1, 20)]).model_copy(update={"fields": ("answer.text",)})
    with pytest.raises(EvaluationError, match=r"quiz: the fields answer.text give no features in 1 items"):
        build(tmp_path, wrong)


def test_files_that_changed_since_they_were_observed_fail_the_build(tmp_path: Path) -> None:
    planned = evaluation_set(tmp_path / "e", "quiz", [prose(1, 20)])
    planned = planned.model_copy(update={"observed": observe(planned)})
    build(tmp_path / "first", planned)
    (tmp_path / "e" / "items.jsonl").write_text(json.dumps({"question": prose(2, 20)}))
    with pytest.raises(EvaluationError, match="changed since this build was planned"):
        build(tmp_path / "second", planned)


def test_a_fingerprint_follows_names_and_contents_and_not_the_place(tmp_path: Path) -> None:
    one, same = (evaluation_set(tmp_path / folder, "quiz", ["a b c d"]) for folder in ("x", "y"))
    other = evaluation_set(tmp_path / "z", "quiz", ["a b c e"])
    assert observe(one) == observe(same) != observe(other)
    (tmp_path / "x" / ".hidden.jsonl").write_text("{}")
    assert observe(one) == observe(same)
    (tmp_path / "x" / "items.jsonl").rename(tmp_path / "x" / "renamed.jsonl")
    assert observe(one) != observe(same)
    assert observe(EvaluationSet(name="gone", root=str(tmp_path / "no"), fields=("q",))) == ""


def test_fields_are_dotted_paths_through_lists() -> None:
    item = {"doc": {"query": "Q", "choices": ["x", "y"], "gold": 1}, "qas": [{"answers": [{"text": "a"}, {"text": "b"}]}]}
    assert list(texts_of(item, "doc.query")) == ["Q"]
    assert list(texts_of(item, "doc.choices")) == ["x", "y"]
    assert list(texts_of(item, "qas.answers.text")) == ["a", "b"]
    assert list(texts_of(item, "doc.gold")) == list(texts_of(item, "doc.none.deeper")) == []


def test_items_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "1"}\n\n{"q": "2"}\n')
    (tmp_path / "b.json").write_text('{"q": "3"}')
    (tmp_path / "c.csv").write_text('q,a\n"line one\nline two",x\n')
    with gzip.open(tmp_path / "d.jsonl.gz", "wt") as stream:
        stream.write('{"q": "4"}\n')
    found = {path.name: [item["q"] for item in items_of(path)] for path in sorted(tmp_path.iterdir())}
    assert found == {"a.jsonl": ["1", "2"], "b.json": ["3"], "c.csv": ["line one\nline two"], "d.jsonl.gz": ["4"]}


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "1"}\n{"q": \n')
    with pytest.raises(EvaluationError, match=r"a.jsonl, line 2: not JSON"):
        list(items_of(tmp_path / "a.jsonl"))


def test_a_file_of_unknown_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<q/>")
    with pytest.raises(EvaluationError, match=r"can't read items from a .xml file"):
        list(items_of(tmp_path / "a.xml"))


def test_held_out_rows_of_every_source_are_evaluations(tmp_path: Path) -> None:
    sources = {name: normalized(tmp_path / name, [prose(1, 30)], held_out=[prose(n, 30)]) for n, name in enumerate(("a", "b"), 2)}
    stats = run_program(index_evaluations, EvaluationNgramsConfig(), tmp_path / "out", normalized=sources).stats
    assert stats["evaluations"] == {
        f"held_out/{name}": {"items": 1, "texts": 1, "commonplace": 0, "passages": 1, "guarded": 1, "features": 18} for name in ("a", "b")
    }


def test_names_of_held_out_evaluations_cannot_be_taken() -> None:
    with pytest.raises(ValidationError, match="belong to the held-out documents"):
        EvaluationSet(name="held_out/web", root="x", fields=("q",))


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    quiz = EvaluationSet(name="quiz", root=str(tmp_path), fields=("q",))
    with pytest.raises(ValidationError, match="occur twice: quiz"):
        EvaluationNgramsConfig(evaluations=(quiz, quiz))


def test_a_set_that_guards_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="name at least one of fields, answers and code"):
        EvaluationSet(name="quiz", root="x")


def test_many_held_out_documents_that_quote_an_item_leave_it_guarded(tmp_path: Path) -> None:
    question = prose(1, 30)
    sources = {"a": normalized(tmp_path / "a", [], held_out=[f"{question} {prose(n, 20)}" for n in range(20)])}
    config = EvaluationNgramsConfig(evaluations=(evaluation_set(tmp_path / "e", "quiz", [question]),))
    index = PassageIndex.read(run_program(index_evaluations, config, tmp_path / "out", normalized=sources))
    assert {tuple(owners_of(index)[feature]) for feature in features_of(question)} == {("quiz",)}
