"""Counts in words, and names of strangers made harmless."""

from __future__ import annotations

import unicodedata

# Categories of characters that act on a terminal or turn the direction of a page.
_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# In words of some scripts these join letters and act on nothing else.
_JOINERS = {"\u200c", "\u200d"}


def counted(n: int, one: str, several: str = "") -> str:
    """A count with its noun, in the singular or the plural.

    Parameters
    ----------
    n : int
    one : str
        The noun in the singular.
    several : str
        Its plural; by default with an s.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row"), counted(3, "person", "people")
    ('1 row', '2,000 rows', '3 people')
    """
    noun = one
    if n != 1:
        noun = several or f"{one}s"
    return f"{n:,} {noun}"


def composed(text: str) -> str:
    """Text in one of the ways in which Unicode can write it, without spaces around.

    Examples
    --------
    >>> composed("Zoe\u0308 ") == "Zoë"
    True
    """
    return unicodedata.normalize("NFC", text).strip()


def confidence_text(confidence: float) -> str:
    """A confidence in per cent, with the digits that its distance from 100% deserves.

    Examples
    --------
    >>> confidence_text(0.95), confidence_text(1 - 0.05 / 3), confidence_text(0.999975)
    ('95%', '98.33%', '99.9975%')
    """
    percent = 100 * confidence
    text = f"{percent:.0f}"
    for digits in range(1, 12):
        if abs(float(text) - percent) <= 0.01 * (100 - percent):
            break
        text = f"{percent:.{digits}f}"
    return f"{text}%"


def harmless(text: str) -> str:
    """A name in which control characters and marks of direction are visible escapes.

    Examples
    --------
    >>> harmless("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    >>> harmless("Zoë · 東京")
    'Zoë · 東京'
    """
    if text.isascii() and text.isprintable():
        return text
    found = []
    for character in text:
        is_acting = unicodedata.category(character) in _ACTING
        if is_acting and character not in _JOINERS:
            found.append(character.encode("unicode_escape").decode("ascii"))
        else:
            found.append(character)
    return "".join(found)
