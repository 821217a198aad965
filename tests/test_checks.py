"""Groups of any kind become codes and names, whatever road the coding takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfhelpers.groups import as_groups


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    names=st.lists(st.text(alphabet="aβ€😀 z\x01", max_size=6), min_size=1, max_size=30),
    swapped=st.booleans(),
)
def test_texts_of_any_letters_are_told_apart(names, swapped):
    wanted = np.array(names).tolist()  # NumPy drops trailing NULs
    column = np.array(names)
    groups = as_groups(
        column.astype(column.dtype.newbyteorder()) if swapped else column, len(names)
    )
    assert groups.names == sorted(set(wanted))
    assert [groups.names[code] for code in groups.codes] == wanted


def test_texts_whose_keys_collide_are_told_apart():
    one, other = "\x01\x05", "\x00" + chr(1_000_003 + 5)  # both fold into 1,000,008
    assert as_groups(np.array([one, other, one]), 3).names == sorted([one, other])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("values", [[5, 7, 5, 0, 1], [0, 100, 0], [3]])
def test_integers_are_coded_in_order(dtype, values):
    groups = as_groups(np.array(values, dtype), len(values))
    assert groups.names == sorted(set(values))
    assert [groups.names[code] for code in groups.codes] == values
    assert groups.counts.tolist() == [values.count(name) for name in groups.names]


def test_the_range_of_small_integers_does_not_overflow():
    values = np.array([-128, 127] * 200, np.int8)
    assert as_groups(values, 400).names == [-128, 127]
