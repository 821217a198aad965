"""The README's first picture says what the code finds."""

import re

import first_picture
import pytest


@pytest.fixture(scope="module")
def found():
    return first_picture.shares()


def test_the_readme_has_the_pictures_numbers(root, found):
    text = (root / "README.md").read_text(encoding="utf-8")
    shares, sizes = found
    first = re.search(r"!\[(.*?)\]\((.*?)\)", text)
    assert root / first[2] == first_picture.PICTURE and first_picture.PICTURE.is_file()
    counts = [str(round(100 * share)) for share in shares.values()]
    assert [n for n in re.findall(r"\d+", first[1]) if n != "100"] == counts
    base, fair = sizes.values()
    assert f"{fair:.2f} of the four labels on average, instead of {base:.2f}" in text


def test_every_dot_is_drawn(found):
    figure = first_picture.draw(found[0])
    for ax, share in zip(figure.axes, found[0].values(), strict=True):
        inside, outside = (len(dots.get_offsets()) for dots in ax.collections)
        assert (inside, inside + outside) == (round(100 * share), 100)
