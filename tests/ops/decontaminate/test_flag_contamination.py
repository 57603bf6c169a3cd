"""Contamination: recall of planted items, precision on what everybody quotes, and the held-out split."""

import json
import textwrap
from pathlib import Path

import pytest

from ops.decontaminate.config import EvaluationSet
from tests.ops.decontaminate.items import evaluation_set, flag, prose, rows_of
from tests.ops.normalized import id_of, normalized

QUESTIONS = [prose(900_000 + n, 40) for n in range(25)]
SPEECH = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, "
    "and dedicated to the proposition that all men are created equal."
)
TRUTH_TABLE = (
    "Construct a complete truth table for the following argument. Then, using the truth table, determine whether the "
    "argument is valid or invalid. If the argument is invalid, choose an option which presents a counterexample."
)
FORMULA = "The sum of the first n terms of an arithmetic series is S = n / 2 * ( 2 a + ( n - 1 ) d ) for all n"


def flagged(rows: dict[str, dict[str, object]], texts: list[str]) -> list[bool]:
    return [bool(rows[id_of(text)]["is_contaminated"]) for text in texts]


@pytest.mark.parametrize(
    "plant",
    [
        lambda question, n: question,
        lambda question, n: f"{prose(1000 + n, 80)}\n\n{question}\n\n{prose(2000 + n, 80)}",
        lambda question, n: f"Q: {question} A: {prose(3000 + n, 12)}",
        lambda question, n: f"{prose(1000 + n, 80)}\n\n{textwrap.fill(question, 40)}\n\n{prose(2000 + n, 80)}",
        lambda question, n: question.replace(" ", "\n"),
        lambda question, n: question.replace(" ", "  \t"),
        lambda question, n: f"{prose(1000 + n, 200)} {question} {prose(2000 + n, 200)}",
        lambda question, n: question.upper(),
        lambda question, n: question.replace(" ", ", ", 3) + "!?",
        lambda question, n: "<p>" + question.replace(" ", " <i class='x'>", 1).replace(" ", "</i>&nbsp;", 2) + "</p>",
        lambda question, n: "\n".join(f"> *{line}*" for line in textwrap.wrap(question, 30)),
        lambda question, n: " ".join(question.split()[:28]),
    ],
    ids=[
        *("verbatim", "own paragraph", "prefix and suffix", "re-wrapped", "a word a line", "other spaces", "amid a long paragraph"),
        *("upper case", "other punctuation", "HTML", "Markdown", "most of it"),
    ],
)
def test_every_planted_item_is_found(tmp_path: Path, plant: object) -> None:
    texts = [plant(question, n) for n, question in enumerate(QUESTIONS)]  # type: ignore[operator]
    clean = [prose(5000 + n, 120) for n in range(100)]
    source = normalized(tmp_path / "in", texts + clean)
    result = flag(tmp_path, {"web": source}, [evaluation_set(tmp_path / "eval", "quiz", QUESTIONS)])["web"]
    rows = rows_of(result)
    assert flagged(rows, texts) == [True] * len(texts)
    assert flagged(rows, clean) == [False] * len(clean)
    assert result.stats["contaminated"] == len(texts)
    assert result.stats["evaluations"] == {"quiz": len(texts)}


def test_a_hit_names_its_evaluation_and_item_and_where_it_stands(tmp_path: Path) -> None:
    both, one = QUESTIONS[0], QUESTIONS[1]
    sets = [evaluation_set(tmp_path / "b", "b_set", [prose(1, 30), both, one]), evaluation_set(tmp_path / "a", "a_set", [both])]
    leak = f"{prose(7, 90)} — “{both}” {prose(8, 50)}"
    rows = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", [leak, one])}, sets)["web"])
    assert rows[id_of(leak)]["evaluations"] == ["a_set", "b_set"]
    assert rows[id_of(one)]["evaluations"] == ["b_set"]
    assert [(hit["evaluation"], hit["item"], hit["field"], hit["kind"]) for hit in rows[id_of(leak)]["hits"]] == [
        ("b_set", "items.jsonl:2", "question", "long"),
        ("a_set", "items.jsonl:1", "question", "long"),
    ]
    for hit in rows[id_of(leak)]["hits"]:
        assert leak.encode()[hit["start"] : hit["end"]].decode() == both
        assert hit["coverage"] == rows[id_of(leak)]["max_coverage"] == 1.0


def test_a_passing_quotation_is_reported_and_not_flagged(tmp_path: Path) -> None:
    part = " ".join(QUESTIONS[0].split()[10:30])
    text = f"{prose(1, 60)} {part} {prose(2, 60)}"
    row = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", [text])}, [evaluation_set(tmp_path / "e", "quiz", QUESTIONS)])["web"])[
        id_of(text)
    ]
    assert not row["is_contaminated"]
    assert row["max_coverage"] == pytest.approx(8 / 28)
    assert row["hits"] == row["evaluations"] == []


def test_a_short_item_matches_between_boundaries_only(tmp_path: Path) -> None:
    item = "What is the capital of Burundi?"
    leaks = [
        f"{prose(1, 50)}\n\n{item}\n\n{prose(2, 50)}",
        f"He asked: {item} Nobody knew.",
        "Question:\nwhat is the\ncapital of **Burundi**",
        f"<li>{item}</li>",
    ]
    others = ["They say what is the capital of Burundi matters little here.", "The capital of Burundi", "A. B. ..."]
    result = flag(
        tmp_path, {"web": normalized(tmp_path / "in", [*leaks, *others])}, [evaluation_set(tmp_path / "e", "quiz", [item, "A.", "..."])]
    )
    assert flagged(rows_of(result["web"]), [*leaks, *others]) == [True] * 4 + [False] * 3
    assert result["web"].stats["kinds"] == {"short": 4}


@pytest.mark.parametrize("words", range(8, 13))
def test_an_item_of_eight_words_or_more_matches_anywhere(tmp_path: Path, words: int) -> None:
    item = prose(words, words)
    leak, most = f"{prose(1, 50)} {item} {prose(2, 50)}", f"{prose(3, 50)} {item.rpartition(' ')[0]} {prose(4, 50)}"
    result = flag(tmp_path, {"web": normalized(tmp_path / "in", [leak, most])}, [evaluation_set(tmp_path / "e", "quiz", [item])])
    assert flagged(rows_of(result["web"]), [leak, most]) == [True, False]


def test_the_labels_of_a_harness_are_no_part_of_an_item(tmp_path: Path) -> None:
    result = flag(
        tmp_path,
        {"web": normalized(tmp_path / "in", ["Was the tower ever finished?"])},
        [evaluation_set(tmp_path / "e", "quiz", ["Q: Was the tower ever finished?\nA:"])],
    )
    assert result["web"].stats["contaminated"] == 1


def test_answers_count_where_they_are_long(tmp_path: Path) -> None:
    reasoning = prose(5, 40)
    folder = tmp_path / "e"
    folder.mkdir()
    (folder / "items.jsonl").write_text(json.dumps({"q": QUESTIONS[0], "a": ["Paris, the capital", reasoning]}))
    answers = EvaluationSet(name="quiz", root=str(folder), answers=("a",))
    texts = ["Paris, the capital", f"{prose(1, 30)} {reasoning}", QUESTIONS[0]]
    rows = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", texts)}, [answers])["web"])
    assert flagged(rows, texts) == [False, True, False]
    assert rows[id_of(texts[1])]["hits"][0]["field"] == "a"


def test_a_solution_is_found_under_other_names(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    folder.mkdir()
    prompt = 'from typing import List\n\n\ndef below(values: List[int], limit: int) -> bool:\n    """ Are all values below it? """\n'
    body = "    for value in values:\n        if value >= limit:\n            return False\n    return sum(values) < limit * len(values)\n"
    (folder / "items.jsonl").write_text(json.dumps({"prompt": prompt, "solution": body}))
    evaluation = EvaluationSet(name="code", root=str(folder), code=("prompt", "solution"))
    leak = "import os\n\ndef check(xs, t):\n  # all?\n" + body.replace("values", "xs").replace("value", "x").replace("limit", "t")
    other = prompt.replace("below", "above") + body.replace(">=", "<=").replace("False", "None").replace("sum(", "max(").replace(
        "for value", "for v"
    )
    rows = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", [leak, other])}, [evaluation], index={"function_tokens": 20})["web"])
    assert flagged(rows, [leak, other]) == [True, False]
    [hit] = rows[id_of(leak)]["hits"]
    assert (hit["kind"], hit["field"]) == ("function", "prompt+solution")
    assert leak[hit["start"] : hit["end"]].startswith("def check(xs, t)")


def test_a_template_of_many_items_gives_nobody_away(tmp_path: Path) -> None:
    questions = [f"{TRUTH_TABLE} {prose(n, 8)}" for n in range(30)]
    alien, leak = f"{TRUTH_TABLE} {prose(77, 8)}", questions[3]
    result = flag(
        tmp_path,
        {"web": normalized(tmp_path / "in", [alien, leak])},
        [evaluation_set(tmp_path / "e", "quiz", questions)],
        boilerplate_documents=100,
    )
    assert flagged(rows_of(result["web"]), [alien, leak]) == [False, True]
    hits = rows_of(result["web"])[id_of(leak)]["hits"]
    assert [hit["item"] for hit in hits] == ["items.jsonl:4"]


def test_numbers_without_a_letter_are_nobodys_item(tmp_path: Path) -> None:
    table = " ".join(str(n) for n in range(40))
    text = table + "\n\n" + prose(1, 30)
    result = flag(tmp_path, {"web": normalized(tmp_path / "in", [text])}, [evaluation_set(tmp_path / "e", "quiz", [table, *QUESTIONS])])
    assert result["web"].stats["contaminated"] == 0


@pytest.mark.parametrize("quoted", [SPEECH, TRUTH_TABLE, FORMULA], ids=["speech", "truth table", "formula"])
def test_what_every_source_quotes_is_no_leak(tmp_path: Path, quoted: str) -> None:
    """Hard negatives: each stands in an evaluation, and in many documents of several sources."""
    texts = {name: [f"{prose(n, 50)}\n\n{quoted}" for n in range(start, start + 8)] for name, start in (("a", 0), ("b", 100), ("c", 200))}
    leak = f"{prose(999, 30)}\n\n{QUESTIONS[0]}"
    sources = {name: normalized(tmp_path / name, [*rows, leak] if name == "a" else rows) for name, rows in texts.items()}
    sets = [evaluation_set(tmp_path / "e", "quiz", [quoted, *QUESTIONS])]
    index = {"boilerplate_documents": 5, "boilerplate_sources": 3}
    result = flag(tmp_path, sources, sets, index=index, boilerplate_documents=100)
    assert [result[name].stats["contaminated"] for name in "abc"] == [1, 0, 0]
    assert rows_of(result["a"])[id_of(leak)]["is_contaminated"]
    assert [result[name].stats["spared"] for name in "abc"] == [8, 8, 8]


def test_a_frequent_match_in_too_few_sources_stays_a_leak(tmp_path: Path) -> None:
    texts = {name: [f"{prose(n, 50)}\n\n{SPEECH}" for n in range(start, start + 8)] for name, start in (("a", 0), ("b", 100))}
    sources = {name: normalized(tmp_path / name, rows) for name, rows in texts.items()} | {"c": normalized(tmp_path / "c", [prose(1, 20)])}
    index = {"boilerplate_documents": 5, "boilerplate_sources": 3}
    result = flag(tmp_path, sources, [evaluation_set(tmp_path / "e", "quiz", [SPEECH])], index=index, boilerplate_documents=100)
    assert [result[name].stats["contaminated"] for name in "abc"] == [8, 8, 0]


def test_a_sources_own_boilerplate_is_dropped_on_both_sides(tmp_path: Path) -> None:
    footer = prose(77, 30)
    pages = [f"{prose(n, 60)}\n\n{footer}" for n in range(20)]
    leak = f"{footer} {QUESTIONS[0]}"
    source = normalized(tmp_path / "in", [*pages, leak])
    result = flag(tmp_path, {"web": source}, [evaluation_set(tmp_path / "e", "quiz", [footer, *QUESTIONS])], boilerplate_documents=10)
    rows = rows_of(result["web"])
    assert flagged(rows, pages) == [False] * 20
    assert rows[id_of(leak)]["is_contaminated"]
    assert [hit["item"] for hit in rows[id_of(leak)]["hits"]] == ["items.jsonl:2"]


def test_held_out_documents_are_guarded_and_never_leaks_of_themselves(tmp_path: Path) -> None:
    held = [prose(n, 60) for n in range(3)]
    copy, fresh = f"{prose(50, 40)}\n\n{held[0]}", prose(60, 80)
    sources = {
        "a": normalized(tmp_path / "a", [fresh], held_out=held),
        "b": normalized(tmp_path / "b", [copy], held_out=[held[1] + " " + prose(70, 5)]),
    }
    result = flag(tmp_path, sources)
    assert flagged(rows_of(result["a"]), [fresh, *held]) == [False] * 4
    row = rows_of(result["b"])[id_of(copy)]
    assert (row["is_contaminated"], row["evaluations"]) == (True, ["held_out/a"])
    assert result["b"].stats["contaminated_held_out"] == 0


def test_a_held_out_document_can_still_leak_an_evaluation(tmp_path: Path) -> None:
    text = f"{prose(1, 30)}\n\n{QUESTIONS[0]}"
    result = flag(tmp_path, {"a": normalized(tmp_path / "a", [], held_out=[text])}, [evaluation_set(tmp_path / "e", "quiz", QUESTIONS)])
    assert result["a"].stats["contaminated_held_out"] == 1


def test_a_short_line_shared_with_a_held_out_document_is_no_leak(tmp_path: Path) -> None:
    heading = "Notes on the present edition"
    train = f"{heading}\n\n{prose(1, 60)}"
    result = flag(tmp_path, {"a": normalized(tmp_path / "a", [train], held_out=[f"{heading}\n\n{prose(2, 60)}"])})
    assert result["a"].stats["contaminated"] == 0


def test_bytes_and_stats_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    texts = [f"{prose(n, 50)}\n\n{QUESTIONS[n % 25] if n % 3 else ''}" for n in range(40)]
    source = normalized(tmp_path / "in", texts, held_out=[prose(500, 50)], shards=3)
    sets = [evaluation_set(tmp_path / "e", "quiz", QUESTIONS)]
    runs = [
        flag(tmp_path / str(rows), {"web": source}, sets, index={"batch_rows": rows}, batch_rows=rows, boilerplate_sample_documents=11)[
            "web"
        ]
        for rows in (1, 7, 4096)
    ]
    assert len({run.digest for run in runs}) == 1
    assert runs[0].stats == runs[1].stats == runs[2].stats
    assert runs[0].stats["sampled_documents"] == 11


def test_no_evaluation_at_all_flags_nothing(tmp_path: Path) -> None:
    result = flag(tmp_path, {"web": normalized(tmp_path / "in", [prose(1, 50)])}, index={"held_out": False})
    assert (result["web"].stats["documents"], result["web"].stats["contaminated"]) == (1, 0)


def test_samples_show_the_place_and_what_stands_around_it(tmp_path: Path) -> None:
    texts = [f"{prose(n, 30)} {QUESTIONS[n]} {prose(100 + n, 30)}" for n in range(6)]
    result = flag(tmp_path, {"web": normalized(tmp_path / "in", texts)}, [evaluation_set(tmp_path / "e", "quiz", QUESTIONS)], samples=4)
    samples = result["web"].read_json("samples.json")
    assert [sample["id"] for sample in samples] == sorted(map(id_of, texts))[:4]
    for sample in samples:
        text = next(text for text in texts if id_of(text) == sample["id"])
        assert sample["matched"] in QUESTIONS
        assert sample["before"] + sample["matched"] + sample["after"] in text
