"""Characters of `w:sym`: code points of a symbol font."""

GREEK = "αβχδεφγηιϕκλμνοπθρστυϖωξψζ"  # the font Symbol under a to z
GREEK_CAPITALS = "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ"
PRIVATE_USE = range(0xE000, 0xF900)


def symbol(font: str, code: str) -> str:
    """The character that a symbol shows; nothing where only the font knows (a Wingdings arrow)."""
    try:
        point = int(code[:6], 16)
    except ValueError:
        return ""
    if font.lower() == "symbol":
        letter = chr(point & 0xFF)
        if "a" <= letter <= "z":
            return GREEK[ord(letter) - ord("a")]
        if "A" <= letter <= "Z":
            return GREEK_CAPITALS[ord(letter) - ord("A")]
    if point < 0x20 or point in PRIVATE_USE or 0xD800 <= point < 0xE000 or point > 0x10FFFF:
        return ""
    return chr(point)
