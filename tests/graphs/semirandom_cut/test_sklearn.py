"""scikit-learn's own estimator checks on the bisection, which takes an affinity: the tag "pairwise" says so."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.graphs.semirandom_cut import SemiRandomBisection

SQUARE = "the check fits a table of samples and features without asking for the tag 'pairwise'; a graph is square"
WORDS = "refused with InputError (a ValueError), but in words about vertices, edges and the shape of the graph"

EXPECTED = {
    "check_clustering": SQUARE,
    "check_estimators_nan_inf": SQUARE,
    "check_positive_only_tag_during_fit": WORDS,
    "check_all_zero_sample_weights_error": WORDS,
    "check_fit2d_1sample": WORDS,
    "check_complex_data": WORDS,
    "check_dtype_object": WORDS,
    "check_estimators_empty_data_messages": WORDS,
}


def expected(estimator):
    return EXPECTED


# the conventions that matter most are in the default tests (`test_scikit_learn_conventions`)
@pytest.mark.slow
# few sweeps: the checks are about the interface
@parametrize_with_checks(
    [SemiRandomBisection(n_iter=10, n_directions=2, certify=False)], expected_failed_checks=expected
)
# the checks' kernel matrices have a diagonal, which is dropped with a warning
@pytest.mark.filterwarnings("ignore:.*dropped .* self-loop:UserWarning")
# the platform's array interface is an option of scipy that must be set before it is imported
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
