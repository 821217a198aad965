"""Which records the authors' "Pokec-z" was made with, told from what they stored."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from cfhelpers.study import authors, pokec_evidence

TEST_SPLIT_OF_POKEC_N = 2200  # about a quarter of 8,797 labelled people


@given(n=st.integers(1, 4000), data=st.data())
def test_coverages_of_n_points_fit_n(n, data):
    covered = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=20))
    coverages = np.round(np.array(covered) / n, 4)
    assert pokec_evidence.fits(coverages, n)


def test_a_fraction_half_way_fits_rounded_up_and_down():
    assert 1 / 32 == 0.03125
    assert pokec_evidence.fits([0.0312], 32)
    assert pokec_evidence.fits([0.0313], 32)
    assert not pokec_evidence.fits([0.0314], 32)


def test_the_smallest_size_is_found_where_it_is_known():
    covered = np.random.default_rng(0).choice(640, 300, replace=False)
    coverages = np.round(covered / 640, 4)
    assert pokec_evidence.fitting_sizes(coverages, up_to=1000) == [640]


def test_a_run_without_a_fitting_size_has_none():
    some = pd.DataFrame({"run": "a", "coverage": [0.3333, 0.25]})
    assert pokec_evidence.split_sizes(some, up_to=11).loc["a"].isna().tolist() == [
        False,
        True,
        True,
    ]


def test_every_pokec_run_of_the_authors_has_the_test_split_of_pokec_n():
    sizes = pokec_evidence.split_sizes(authors.pokec_coverages(), up_to=3000)
    assert (sizes["smallest n that fits"] == TEST_SPLIT_OF_POKEC_N).all()
    assert sizes["next n that fits"].isna().all()
    assert sum(name.startswith("Pokec_z") for name in sizes.index) == 3


def test_no_stored_set_has_a_fifth_label():
    largest = pokec_evidence.largest_sets(authors.runs())
    assert largest["pokec_z"].max() == 4
    assert largest["pokec_n"].max() == 4


def test_full_sets_have_the_same_gap_in_both_networks():
    gaps = pokec_evidence.full_set_gaps(authors.runs(), n_classes=4)
    by_dataset = gaps.pivot(index="attribute", columns="dataset", values="disparity")
    assert (by_dataset["pokec_n"] == by_dataset["pokec_z"]).all()
    assert by_dataset["pokec_n"].to_dict() == {"gender": 0.0507, "region+gender": 0.0861}
    assert (gaps["disparity_sd"] == 0).all()
