"""scikit-learn's own checks of an estimator, each expected failure with its reason.

The checks call fit(X, y) with any X. The classifier wants groups, and a model that is
fitted already or probabilities in place of X. So it is checked twice: as it is, for what
does not need a fit, and with a stand-in that trains a model and makes up groups.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from cfhelpers import FairConformalClassifier

pytestmark = pytest.mark.filterwarnings("ignore")

NEEDS_GROUPS = "fit wants groups, which no check gives"
BEFORE_GROUPS = (
    "the check wants another message; without groups it says that they are missing"
)


class LateModel:
    """A model that is trained when the classifier around it is fitted."""

    def __init__(self):
        self.model = None

    def __repr__(self):
        return "LateModel()"  # the name of a test must be the same in every process

    @property
    def classes_(self):
        return self.model.classes_

    def predict_proba(self, X):
        return self.model.predict_proba(X)


class TrainsItself(FairConformalClassifier):
    """The classifier with a model of its own and every second person in a group."""

    def fit(self, X, y):
        self.estimator.model = LogisticRegression().fit(X, y)
        n = len(self.estimator.predict_proba(X))
        return super().fit(X, y, np.arange(n) % 2)

    def __sklearn_clone__(self):
        copy = super().__sklearn_clone__()
        copy.estimator = LateModel()
        return copy


AS_IT_IS = {
    "check_fit_score_takes_y": NEEDS_GROUPS,
    "check_estimators_overwrite_params": NEEDS_GROUPS,
    "check_dont_overwrite_parameters": NEEDS_GROUPS,
    "check_estimators_fit_returns_self": NEEDS_GROUPS,
    "check_readonly_memmap_input": NEEDS_GROUPS,
    "check_n_features_in_after_fitting": NEEDS_GROUPS,
    "check_positive_only_tag_during_fit": NEEDS_GROUPS,
    "check_estimators_dtypes": NEEDS_GROUPS,
    "check_complex_data": BEFORE_GROUPS,
    "check_dtype_object": NEEDS_GROUPS,
    "check_estimators_empty_data_messages": BEFORE_GROUPS,
    "check_pipeline_consistency": NEEDS_GROUPS,
    "check_estimators_nan_inf": BEFORE_GROUPS,
    "check_estimator_sparse_tag": BEFORE_GROUPS,
    "check_estimator_sparse_array": BEFORE_GROUPS,
    "check_estimator_sparse_matrix": BEFORE_GROUPS,
    "check_estimators_pickle": NEEDS_GROUPS,
    "check_f_contiguous_array_estimator": NEEDS_GROUPS,
    "check_classifier_data_not_an_array": NEEDS_GROUPS,
    "check_classifiers_classes": NEEDS_GROUPS,
    "check_classifiers_train": NEEDS_GROUPS,
    "check_classifiers_regression_target": BEFORE_GROUPS,
    "check_supervised_y_2d": NEEDS_GROUPS,
    "check_methods_sample_order_invariance": NEEDS_GROUPS,
    "check_methods_subset_invariance": NEEDS_GROUPS,
    "check_fit2d_1sample": BEFORE_GROUPS,
    "check_fit2d_1feature": BEFORE_GROUPS,
    "check_dict_unchanged": NEEDS_GROUPS,
    "check_fit_idempotent": NEEDS_GROUPS,
    "check_fit_check_is_fitted": NEEDS_GROUPS,
    "check_n_features_in": NEEDS_GROUPS,
    "check_fit2d_predict1d": NEEDS_GROUPS,
    "check_requires_y_none": BEFORE_GROUPS,
    "check_sample_weights_pandas_series": NEEDS_GROUPS,
    "check_sample_weights_not_an_array": NEEDS_GROUPS,
    "check_sample_weights_list": NEEDS_GROUPS,
    "check_all_zero_sample_weights_error": BEFORE_GROUPS,
    "check_sample_weights_shape": NEEDS_GROUPS,
    "check_sample_weights_not_overwritten": NEEDS_GROUPS,
    "check_sample_weight_equivalence_on_dense_data": NEEDS_GROUPS,
    "check_classifiers_one_label_sample_weights": BEFORE_GROUPS,
}
WITH_A_STAND_IN = {
    "check_estimators_overwrite_params": "the stand-in trains the model that it has",
    "check_fit2d_predict1d": (
        "one entry per person may be all there is, such as a text; the message names the "
        "number of features instead"
    ),
}


def expected_failures(estimator):
    if isinstance(estimator, TrainsItself):
        return WITH_A_STAND_IN
    return AS_IT_IS


@pytest.mark.slow
@parametrize_with_checks(
    [FairConformalClassifier(), TrainsItself(LateModel())],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)
