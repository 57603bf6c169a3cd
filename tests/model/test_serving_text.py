"""From tokens to text, whatever bytes and stop strings fall where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model.serving.chat import prompt_of
from model.serving.text import Text
from tests.model.speaker import byte_tokenizer

BYTES = byte_tokenizer()


def ids(text: str | bytes, tokenizer: Tokenizer = BYTES) -> list[int]:
    """One token a byte, unpaired ones too."""
    data = text.encode() if isinstance(text, str) else text
    return [tokenizer.token_to_id(_letter(byte)) for byte in data]


def _letter(byte: int) -> str:
    """The character that byte-level tokenizers write for a byte: itself where it can be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte if byte in seen else 256 + [other for other in range(256) if other not in seen].index(byte))


def written(tokens: list[int], stop: tuple[str, ...] = (), lead: str = "") -> tuple[list[str], Text]:
    text, pieces = Text(BYTES, stop, lead), []
    for token in tokens:
        pieces.append(text.add(token))
        if text.is_stopped:
            break
    pieces.append(text.end())
    return [piece for piece in pieces if piece], text


@given(text=st.text(max_size=40))
def test_pieces_are_whole_characters_and_join_to_the_text(text: str) -> None:
    pieces, found = written(ids(text))
    assert "".join(pieces) == found.text == text
    assert all(piece.encode().decode() == piece for piece in pieces)


@given(data=st.binary(max_size=40))
def test_any_bytes_become_what_the_tokenizer_makes_of_all_of_them(data: bytes) -> None:
    tokens = ids(data)
    pieces, found = written(tokens)
    assert "".join(pieces) == found.text == BYTES.decode(tokens) == data.decode(errors="replace")


@given(
    text=st.text(alphabet="abé\n", max_size=30),
    stop=st.lists(st.text(alphabet="abé\n", min_size=1, max_size=4), max_size=3),
)
def test_a_stop_string_ends_the_text_in_front_of_it_and_no_piece_has_shown_a_part_of_it(text: str, stop: list[str]) -> None:
    pieces, found = written(ids(text), tuple(stop))
    ends = [end for end in range(1, len(text) + 1) if any(text[:end].endswith(one) for one in stop)]
    if ends:
        seen = text[: ends[0]]
        expected = seen[: min(place for one in stop if (place := seen.find(one)) >= 0)]
    else:
        expected = text
    assert "".join(pieces) == found.text == expected
    assert found.is_stopped == bool(ends)


def test_what_may_become_a_stop_string_is_held_back_until_it_can_not() -> None:
    text = Text(BYTES, ["\n\nUser:"])
    shown = [text.add(token) for token in ids("tide\n\nUse it")]
    assert shown == ["t", "i", "d", "e", "", "", "", "", "", "\n\nUse ", "i", "t"]


def test_the_lead_is_left_out_once() -> None:
    assert written(ids("  tide"), lead=" ")[1].text == " tide"
    assert written(ids("tide"), lead=" ")[1].text == "tide"


def test_a_conversation_is_paragraphs_that_end_where_the_answer_begins() -> None:
    turns = [("system", "Be short."), ("user", "Tide?"), ("assistant", "The sea."), ("user", "Why?")]
    found = prompt_of([{"role": role, "content": content} for role, content in turns])
    assert found == "Be short.\n\nUser: Tide?\n\nAssistant: The sea.\n\nUser: Why?\n\nAssistant:"


@pytest.mark.parametrize("literal", ["\N{REPLACEMENT CHARACTER}", "a\N{REPLACEMENT CHARACTER}b"])
def test_a_replacement_character_of_the_text_itself_stays(literal: str) -> None:
    assert written(ids(literal))[1].text == literal
