"""Contamination: recall of planted items, precision on what everybody quotes, and the held-out split."""

import textwrap
from pathlib import Path

import pytest

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
    ],
    ids=["verbatim", "own paragraph", "prefix and suffix", "re-wrapped", "a word a line", "other spaces"],
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


def test_a_hit_names_its_evaluations_and_n_grams(tmp_path: Path) -> None:
    both, one = QUESTIONS[0], QUESTIONS[1]
    sets = [evaluation_set(tmp_path / "b", "b_set", [both, one]), evaluation_set(tmp_path / "a", "a_set", [both])]
    rows = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", [both, one])}, sets)["web"])
    assert rows[id_of(both)]["evaluations"] == ["a_set", "b_set"]
    assert rows[id_of(one)]["evaluations"] == ["b_set"]
    assert len(rows[id_of(both)]["matched_ngrams"]) == 40 - 13 + 1
    assert rows[id_of(both)]["max_overlap"] == 1.0


def test_a_passing_quotation_is_reported_and_not_flagged(tmp_path: Path) -> None:
    text = f"{prose(1, 60)} {QUESTIONS[0]} {prose(2, 60)}"
    row = rows_of(flag(tmp_path, {"web": normalized(tmp_path / "in", [text])}, [evaluation_set(tmp_path / "e", "quiz", QUESTIONS)])["web"])[
        id_of(text)
    ]
    assert not row["is_contaminated"]
    assert 0 < row["max_overlap"] < 0.5
    assert row["matched_ngrams"] == row["evaluations"] == []


def test_a_short_item_matches_as_a_whole_paragraph_only(tmp_path: Path) -> None:
    item = "What is the capital of Burundi?"
    alone, inside = f"{prose(1, 50)}\n\n{item}\n\n{prose(2, 50)}", f"He asked: {item} Nobody knew."
    result = flag(
        tmp_path, {"web": normalized(tmp_path / "in", [alone, inside])}, [evaluation_set(tmp_path / "e", "quiz", [item, "A.", "..."])]
    )
    assert flagged(rows_of(result["web"]), [alone, inside]) == [True, False]


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
    # The footer's 18 windows count neither as hits nor as misses: 28 of the question, 12 across the seam.
    assert rows[id_of(leak)]["max_overlap"] == pytest.approx(28 / 40)


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
