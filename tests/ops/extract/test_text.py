import pytest

from ops.extract.text import decode_text, is_binary, looks_like_html

GERMAN = "Die Fischerin fährt früh über die Förde und prüft die Köder. " * 5
RUSSIAN = "Море шумит, и чайки кричат над гаванью каждое утро. " * 5
JAPANESE = "海は静かで、港には船が並んでいます。朝の光がきれいです。" * 5


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "iso-8859-1"),
        (RUSSIAN, "koi8-r"),
        (RUSSIAN, "windows-1251"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        (JAPANESE, "iso-2022-jp"),
    ],
)
def test_a_declared_charset_decodes(text: str, encoding: str) -> None:
    assert decode_text(text.encode(encoding), encoding, is_html=False) == (text, 0.0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_needs_no_declaration_and_a_wrong_one_does_no_harm(encoding: str) -> None:
    assert decode_text(JAPANESE.encode(encoding), "iso-8859-1", is_html=False) == (JAPANESE, 0.0)


@pytest.mark.parametrize(
    ("text", "encoding"), [(RUSSIAN, "windows-1251"), (JAPANESE, "shift_jis"), (JAPANESE, "euc-jp"), (GERMAN, "windows-1252")]
)
def test_an_undeclared_charset_is_detected(text: str, encoding: str) -> None:
    assert decode_text(text.encode(encoding), None, is_html=False) == (text, 0.0)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_known_by_its_zeros(encoding: str) -> None:
    data = GERMAN.encode(encoding)
    assert not is_binary(data)
    assert decode_text(data, None, is_html=False) == (GERMAN, 0.0)


@pytest.mark.parametrize(
    ("text", "actual", "declared"),
    [("①髙橋と濵田", "cp932", "shift_jis"), ("똠방각하와 펲시콜라", "cp949", "euc-kr"), ("„curly“ – dash", "cp1252", "iso-8859-1")],
)
def test_a_charsets_name_stands_for_its_superset_as_in_browsers(text: str, actual: str, declared: str) -> None:
    assert decode_text(text.encode(actual), declared, is_html=False) == (text, 0.0)


def test_a_page_names_its_own_charset() -> None:
    page = f'<html><head><meta charset="koi8-r"></head><body>{RUSSIAN}</body></html>'
    assert decode_text(page.encode("koi8-r"), None, is_html=True)[0] == page


def test_bytes_that_fit_no_charset_are_measured() -> None:
    text, share = decode_text(b"\x81\x8d\xff" * 100, "utf-8", is_html=False)
    assert share > 0.1 or "\ufffd" not in text


def test_nul_characters_are_dropped() -> None:
    assert decode_text(b"a\0b", None, is_html=False)[0] == "ab"


@pytest.mark.parametrize("data", [b"%PDF-1.7 ...", b"\x89PNG\r\n\x1a\n", b"GIF89a", bytes(range(256)) * 4, b"PK\x03\x04rest"])
def test_binary_is_told_from_text(data: bytes) -> None:
    assert is_binary(data)


@pytest.mark.parametrize(
    "data", [b"plain words\n", GERMAN.encode("latin-1"), JAPANESE.encode("utf-16"), JAPANESE.encode("iso-2022-jp"), b"form\x0cfeed"]
)
def test_text_in_any_charset_is_no_binary(data: bytes) -> None:
    assert not is_binary(data)


def test_html_is_known_by_its_beginning() -> None:
    assert looks_like_html(b"\xef\xbb\xbf\r\n<!DOCTYPE HTML PUBLIC ...")
    assert looks_like_html(b"<!-- saved --><html lang=en>")
    assert not looks_like_html(b"Title: about <p> elements")
