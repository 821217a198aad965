"""Names that rows, tables, figures and the scorecard share; files hold their text."""

from enum import StrEnum

from cfhelpers.control import Guarantee


class DataKind(StrEnum):
    """Whose records a row comes from; the order is that in which they are preferred."""

    PAPERS = "the paper's"
    OTHER = "other"  # real, of another year or with fewer features
    SIMULATED = "simulated"


class Arm(StrEnum):
    """Who made the sets: the base predictor, conformal fairness, or BatchGCP."""

    BASE = "base"
    CF = "cf"
    CF_GUARANTEE = "cf_guarantee"
    BATCH_GCP = "batch_gcp"


CF_ARMS = {Guarantee.NONE: Arm.CF, Guarantee.FIXED_SEQUENCE: Arm.CF_GUARANTEE}
