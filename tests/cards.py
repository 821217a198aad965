"""Printed cards, for the tests of datasets."""


def flat(card) -> str:
    """A printed card on one line."""
    return " ".join(str(card).split())
