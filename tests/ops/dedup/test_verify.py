"""The verdicts on one cluster."""

import random
from collections import Counter

import pytest

from ops.dedup.config import FuzzyDedupConfig
from ops.dedup.verify import Verdict, judge
from ops.dedup.verify_pair import Member, compare
from tests.ops.normalized import id_of

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=6)) for n in range(2_000)]


def prose(seed: int, words: int) -> str:
    return " ".join(random.Random(seed + 10_000).choices(WORDS, k=words))


def edited(text: str, share: float, seed: int = 0) -> str:
    """The text with a share of its words replaced, spread evenly."""
    words = text.split()
    step = round(1 / share)
    return " ".join(f"new{seed}x{n}" if n % step == step // 2 else word for n, word in enumerate(words))


def member(text: str, number: int = 0, *, held_out: bool = False, buckets: tuple[int, ...] = (1,)) -> Member:
    return Member(number, id_of(text), held_out, len(text), text.encode(), frozenset(buckets))


def verdicts(*members: Member, **config: object) -> dict[int, Verdict]:
    """Verdicts by number, of members in the order that the program brings them in."""
    ordered = sorted(members, key=lambda m: (not m.is_held_out, -m.chars, m.number))
    return {verdict.member.number: verdict for verdict in judge(ordered, FuzzyDedupConfig.model_validate(config))}


def survivors(*members: Member, **config: object) -> dict[int, int | None]:
    return {number: verdict.survivor.number if verdict.survivor else None for number, verdict in verdicts(*members, **config).items()}


def trigrams(text: str) -> Counter[tuple[str, ...]]:
    words = text.lower().split()
    return Counter(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def test_similarity_is_the_multiset_overlap_of_word_trigrams() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        left, right = (" ".join(rng.choices(WORDS[:6], k=rng.randint(1, 60))) for _ in range(2))
        a, b = trigrams(left), trigrams(right)
        found = compare(member(left), member(right), 100)
        assert found.containment == pytest.approx((a & b).total() / a.total())
        assert found.contains == pytest.approx((a & b).total() / b.total())
        assert found.jaccard == pytest.approx((a & b).total() / (a | b).total())


def test_a_text_that_a_longer_one_contains_is_removed() -> None:
    text = prose(1, 200)
    assert survivors(member(text, 0), member(f"{prose(2, 40)} {text.upper()}", 1)) == {0: 1, 1: None}


def test_of_equal_texts_the_first_survives() -> None:
    text = prose(1, 50)
    assert survivors(member(text, 5), member(text, 2), member(text, 9)) == {2: None, 5: 2, 9: 2}


def test_the_threshold_decides_how_many_edits_are_too_many() -> None:
    text = prose(1, 600)
    anchor = member(text + " " + prose(3, 30), 0)
    few, many = member(edited(text, 0.01), 1), member(edited(text, 0.04), 1)
    assert [survivors(anchor, copy)[1] for copy in (few, many)] == [0, None]
    assert [survivors(anchor, copy, min_containment=1.0, max_own_words=0)[1] for copy in (few, many)] == [None, None]
    assert [survivors(anchor, copy, min_containment=0.8)[1] for copy in (few, many)] == [0, 0]
    assert survivors(anchor, few, member(edited(text, 0.04, seed=2), 2)) == {0: None, 1: 0, 2: 0}  # the third is a witness


def test_templates_with_different_content_survive() -> None:
    template = "Dear customer, your order of {} was sent to {} on {} by way of {} and will reach you within three working days."
    letters = [member(template.format(*random.Random(n).sample(WORDS, 4)), n) for n in range(50)]
    assert set(survivors(*letters).values()) == {None}


def test_fillings_of_a_template_survive_however_much_they_share() -> None:
    """At 0.985 contained, each would go as a copy with changes, were its neighbours not asked."""
    template = prose(4, 200).split()
    letters = [member(" ".join([*template[:90], WORDS[7 * n], *template[91:]]), n) for n in range(12)]
    found = verdicts(*letters)
    assert {verdict.survivor for verdict in found.values()} == {None}
    assert sum(verdict.is_template for verdict in found.values()) == 11
    assert sum(verdict.survivor is not None for verdict in verdicts(*letters, max_witnesses=0).values()) == 11


def test_copies_edited_at_places_of_their_own_go_however_many_they_are() -> None:
    rng, base = random.Random(3), prose(4, 200).split()
    copies = []
    for n in range(12):
        words = list(base)
        for place in rng.sample(range(200), 6):
            words[place] = rng.choice(WORDS)
        copies.append(member(" ".join(words), n))
    assert list(survivors(*copies).values()).count(None) == 1


def test_a_copy_with_small_edits_all_over_goes_and_one_with_a_passage_of_its_own_stays() -> None:
    rng, base = random.Random(3), prose(4, 400).split()
    edited_all_over = list(base)
    for place in range(20, 400, 40):
        edited_all_over[place] = rng.choice(WORDS)
    rewritten = [*base[:200], *prose(9, 25).split(), *base[225:]]
    anchor = member(" ".join(base) + " the end", 0)
    assert survivors(anchor, member(" ".join(edited_all_over), 1))[1] == 0
    assert survivors(anchor, member(" ".join(rewritten), 1))[1] is None


def test_neighbours_of_other_buckets_have_no_say() -> None:
    template = prose(4, 200).split()
    letters = [member(" ".join([*template[:90], WORDS[7 * n], *template[91:]]), n, buckets=(n // 2, 99 + n)) for n in range(2)]
    strangers = [member(" ".join([*template[:90], WORDS[9 * n], *template[91:]]), n, buckets=(1_000 + n,)) for n in range(5, 9)]
    assert survivors(*letters)[1] == 0
    assert verdicts(*letters, *strangers)[1].is_template is False


def test_repeating_a_line_does_not_make_a_text_contained() -> None:
    row = "total items in stock "
    table = member(row * 50 + prose(1, 20), 0)
    assert survivors(table, member(row * 3 + prose(2, 1_0) + " " + row * 2, 1))[1] is None
    assert compare(member("a b c " * 10), member("a b c " * 2 + prose(3, 60)), 10).containment < 0.2


def test_a_removed_members_survivor_is_itself_kept() -> None:
    rng = random.Random(5)
    base = prose(1, 300).split()
    members = []
    for seed in range(40):
        words = list(base)
        for place in rng.sample(range(300), 4):
            words[place] = rng.choice(WORDS)
        members.append(member(" ".join(words) + " " + prose(100 + seed, rng.randint(0, 5)), seed))
    found = survivors(*members)
    kept = {number for number, survivor in found.items() if survivor is None}
    assert kept
    assert len(kept) < len(members)
    assert {survivor for survivor in found.values() if survivor is not None} <= kept


def test_a_text_unlike_the_anchor_finds_its_local_representative() -> None:
    anchor = member(prose(1, 500), 0, buckets=(1,))
    bridge = member(prose(2, 300), 1, buckets=(1, 2))
    copy = member(prose(2, 290), 2, buckets=(2,))
    stranger = member(prose(2, 280), 3, buckets=(3,))
    found = survivors(anchor, bridge, copy, stranger)
    assert found == {0: None, 1: None, 2: 1, 3: None}


def test_comparisons_are_capped() -> None:
    members = [member(prose(n, 100), n) for n in range(30)]
    found = verdicts(*members, max_comparisons=2)
    assert max(verdict.comparisons for verdict in found.values()) == 2


def test_representatives_are_capped_and_nothing_is_lost() -> None:
    members = [member(prose(n, 100 - n), n) for n in range(20)]
    copies = [member(prose(n, 100 - n)[:-8], 50 + n) for n in range(20)]
    found = survivors(*members, *copies, max_representatives=1)
    assert [number for number, survivor in found.items() if survivor is not None] == [50]


def test_an_oversized_text_is_kept_without_comparison() -> None:
    text = prose(1, 300)
    found = verdicts(member(text, 0), member(text + " end", 1), max_text_chars=len(text) + 1)
    assert (found[1].survivor, found[1].comparisons) == (None, 0)
    assert found[0].survivor is None


def test_it_is_the_members_own_words_that_must_be_contained() -> None:
    """A kept text of few long words is longer in characters and still has less to say."""
    shared = prose(1, 80)
    kept, more = member(shared + " " + "x" * 900, 0), member(shared + " " + prose(2, 40), 1)
    assert kept.chars > more.chars
    assert survivors(kept, more) == {0: None, 1: None}


def test_a_held_out_text_survives_before_longer_train_texts() -> None:
    text = prose(1, 200)
    leak = member(text + " " + prose(2, 400), 0)
    copy = member(text[:-20], 1)
    held = member(text, 2, held_out=True)
    assert survivors(leak, copy, held) == {0: 2, 1: 2, 2: None}


def test_a_train_text_in_a_held_out_cluster_survives_if_it_is_different() -> None:
    held, other = member(prose(1, 200), 0, held_out=True), member(prose(2, 200), 1)
    assert survivors(held, other) == {0: None, 1: None}


def test_held_out_duplicates_keep_one() -> None:
    text = prose(1, 100)
    assert survivors(member(text, 3, held_out=True), member(text + " x", 4, held_out=True)) == {3: 4, 4: None}


def test_chinese_is_compared_by_characters() -> None:
    rng = random.Random(1)
    han = "".join(chr(rng.randint(0x4E00, 0x9000)) for _ in range(600))
    page = "\n".join(han[i : i + 30] for i in range(0, 600, 30))
    touched = page.replace(page[100], "新", 1)
    other = "\n".join("".join(rng.sample(han, 30)) for _ in range(20))
    found = verdicts(member(page, 0), member(touched, 1), member(other, 2))
    assert found[1].survivor is not None
    assert found[1].similarity is not None
    assert found[1].similarity.by_characters
    assert found[2].survivor is None


def test_where_words_say_little_the_character_jaccard_must_be_high_too() -> None:
    rng = random.Random(2)
    han = "".join(chr(rng.randint(0x4E00, 0x9000)) for _ in range(900))
    whole, half = member(han, 0), member(han[:450], 1)
    assert survivors(whole, half) == {0: None, 1: None}
    assert survivors(whole, half, min_char_jaccard=0.3) == {0: None, 1: 0}


def test_a_train_text_that_contains_a_held_out_one_leaks_it_in_any_script() -> None:
    rng = random.Random(4)
    han = "".join(chr(rng.randint(0x4E00, 0x9000)) for _ in range(900))
    assert survivors(member(han[:450], 0, held_out=True), member(han, 1)) == {0: None, 1: 0}


def test_an_empty_text_is_never_removed_as_contained() -> None:
    assert survivors(member(prose(1, 20), 0), member(" \n", 1)) == {0: None, 1: None}
