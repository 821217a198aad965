"""An audit of anyone's prediction sets, in arrays or in a file, and its report.

- statistics: coverages by label and group, disparities with intervals, verdicts;
- reading: what a file may hold, and what is refused;
- files: the audit of a file, and thresholds that mend it;
- report: the page;
- command: the command line.
"""

from cfhelpers.auditing.files import FileAudit, audit_file
from cfhelpers.auditing.statistics import (
    BEYOND,
    MISSING,
    TRUE_LABEL,
    UNDECIDED,
    WITHIN,
    Audit,
    audit,
)

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
