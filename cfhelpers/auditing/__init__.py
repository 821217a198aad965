"""An audit of anyone's prediction sets, in arrays or in a file, and its report.

- words, missing, weighting: counts in words, points without a group, survey weights;
- verdicts: what counts say of a disparity; projection: how many people would tell;
- statistics: coverages by label and group, disparities with intervals, verdicts;
- opening, grouping, reading: what a file may hold, and what is refused;
- files: the audit of a file, and thresholds that mend it;
- sentences, document, tables, card, compare, pictures, view, report: what is written;
- command: the command line.
"""

from __future__ import annotations

from cfhelpers.auditing.files import FileAudit, Source, audit_file
from cfhelpers.auditing.missing import MISSING
from cfhelpers.auditing.statistics import TRUE_LABEL, Audit, audit
from cfhelpers.auditing.verdicts import BEYOND, UNDECIDED, WITHIN, Verdict
from cfhelpers.auditing.weighting import Weights

__all__ = [
    "BEYOND",
    "MISSING",
    "TRUE_LABEL",
    "UNDECIDED",
    "WITHIN",
    "Audit",
    "FileAudit",
    "Source",
    "Verdict",
    "Weights",
    "audit",
    "audit_file",
]
