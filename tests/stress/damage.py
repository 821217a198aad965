"""Ways to damage bytes and JSON, and names that strangers might choose."""

import copy
import math

HOSTILE_NAMES = (
    "../../outside",
    "/etc/outside",
    "..",
    ".",
    "a/../../outside",
    "..\\..\\outside",
    "C:\\outside",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "line\nbreak\rreturn",
    "nul\x00byte",
    "\u202eright to left",
    "~/outside",
    "$(touch outside)",
    "CON",
    "x" * 300,
    "-rf",
    "%s%n{0}{__class__}",
)
ODD_VALUES = (
    None,
    True,
    0,
    -1,
    1e308,
    2**70,
    0.5,
    math.nan,
    math.inf,
    "",
    "inf",
    "nan",
    "text",
    "../../outside",
    [],
    [[]],
    {},
    {"a": None},
    [None],
    [1, "1", None],
)


def damaged(data, rng):
    """The bytes with a few flipped, cut, put in twice, left out or made up."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, max(len(found), 1)))
        length = int(rng.integers(1, 9))
        how = rng.integers(7)
        if how == 0 and found:
            found[place] ^= 1 << int(rng.integers(8))
        elif how == 1:
            del found[place:]
        elif how == 2:
            del found[place : place + length]
        elif how == 3:
            found[place:place] = found[place : place + 40]
        elif how == 4:
            found[place : place + length] = rng.bytes(length)
        elif how == 5:
            found[place : place + length] = b"\x00" * length
        elif how == 6:
            odd = (b'"', b",", b"\n", b"-1", b"nan", b"1e999", b"\xff\xfe", b";", b"{}")
            found[place:place] = odd[int(rng.integers(len(odd)))]
    return bytes(found)


def places_in(tree, path=()):
    """Where every value of a JSON tree is."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += places_in(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree[:6]):
            found += places_in(value, (*path, place))
    return found


def spoilt(tree, rng):
    """A copy of a JSON tree in which one value is odd, gone, or under another name."""
    tree = copy.deepcopy(tree)
    places = places_in(tree)
    *above, last = places[int(rng.integers(len(places)))]
    inside = tree
    for key in above:
        inside = inside[key]
    how = rng.integers(4)
    if how == 0:
        del inside[last]
    elif how == 1 and isinstance(inside, dict):
        inside[f"{last}!"] = inside.pop(last)
    else:
        inside[last] = copy.deepcopy(ODD_VALUES[int(rng.integers(len(ODD_VALUES)))])
    return tree
