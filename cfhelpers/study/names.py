"""Names that rows, tables, figures and the scorecard share; files hold their text."""

from enum import StrEnum

from cfhelpers.control import Guarantee


class DataKind(StrEnum):
    """Whose records a row comes from; the order is that in which they are preferred."""

    PAPERS = "the paper's"
    OTHER = "other"  # real, of another year or with fewer features
    FORMER = "former model"  # real, by a model or on features that have been replaced
    SIMULATED = "simulated"


class Arm(StrEnum):
    """Who made the sets: the base predictor, conformal fairness, or BatchGCP."""

    BASE = "base"
    CF = "cf"
    CF_GUARANTEE = "cf_guarantee"
    BATCH_GCP = "batch_gcp"


CF_ARMS = {Guarantee.NONE: Arm.CF, Guarantee.FIXED_SEQUENCE: Arm.CF_GUARANTEE}
DATASETS = {
    "credit": "Credit",
    "acs_income": "ACSIncome",
    "acs_education": "ACSEducation",
    "pokec_n": "Pokec-n",
    "pokec_z": "Pokec-z",
}
RUNS = (  # a dataset, as the paper calls it, and a sensitive attribute
    ("credit", "age"),
    ("acs_income", "race"),
    ("acs_education", "race"),
    ("pokec_n", "region"),
    ("pokec_n", "gender"),
    ("pokec_n", "region+gender"),
    ("pokec_z", "region"),
    ("pokec_z", "gender"),
    ("pokec_z", "region+gender"),
)
# The paper ran "Pokec-z" on Pokec-n's records (erratum 10), with another base model.
RECORDS_OF = {"pokec_z": "pokec_n"}
