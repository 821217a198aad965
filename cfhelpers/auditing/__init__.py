"""An audit of anyone's prediction sets, in arrays or in a file, and its report.

- statistics: coverages by label and group, disparities with intervals, verdicts;
- verdicts: what counts say of a disparity, and how many points would decide;
- missing: points without a group;
- reading: what a file may hold, and what is refused;
- files: the audit of a file, and thresholds that mend it;
- report: the page;
- command: the command line.
"""

from cfhelpers.auditing.files import FileAudit, audit_file
from cfhelpers.auditing.missing import MISSING
from cfhelpers.auditing.statistics import TRUE_LABEL, Audit, audit
from cfhelpers.auditing.verdicts import BEYOND, UNDECIDED, WITHIN

__all__ = [
    "BEYOND",
    "MISSING",
    "TRUE_LABEL",
    "UNDECIDED",
    "WITHIN",
    "Audit",
    "FileAudit",
    "audit",
    "audit_file",
]
