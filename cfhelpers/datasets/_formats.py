"""The raw files of ACS and Pokec: their names, columns and sizes."""

# ACS: the two-letter code of a state and its FIPS code, in the order of the latter.
_STATE_CODES = """
AL01 AK02 AZ04 AR05 CA06 CO08 CT09 DE10 DC11 FL12 GA13 HI15 ID16 IL17 IN18 IA19 KS20 KY21
LA22 ME23 MD24 MA25 MI26 MN27 MS28 MO29 MT30 NE31 NV32 NH33 NJ34 NM35 NY36 NC37 ND38 OH39
OK40 OR41 PA42 RI44 SC45 SD46 TN47 TX48 UT49 VT50 VA51 WA53 WV54 WI55 WY56 PR72
"""
STATES = {code[:2]: code[2:] for code in _STATE_CODES.split()}
# What some columns of 2018 are called in other years.
RENAMED = {
    "RELP": "RELSHIPP",
    "JWTR": "JWTRNS",
    "ST": "STATE",
    "POBP": "POBP12",
    "OCCP": "OCCP12",
}
FIRST_YEAR_OF_FIPS_NAMES = 2017
FIRST_YEAR_OF_RENAMED = 2019  # of RELSHIPP and JWTRNS

# Pokec: FairGNN's name of the user file, and the column that holds the field of work.
STEMS = {"pokec_n": "region_job_2", "pokec_z": "region_job"}
TARGET = "I_am_working_in_field"
# Users, and lines of the relationship file.
SIZES = {
    "pokec_n": (66_569, 729_129),
    "pokec_z": (67_797, 882_765),
}


def csv_name(state: str, year: int) -> str:
    """folktables' name of a state's person file.

    Examples
    --------
    >>> csv_name("CO", 2018), csv_name("CO", 2016)
    ('psam_p08.csv', 'ss16pco.csv')
    """
    if year >= FIRST_YEAR_OF_FIPS_NAMES:
        return f"psam_p{STATES[state]}.csv"
    return f"ss{year % 100:02d}p{state.lower()}.csv"


def pokec_names(name: str) -> tuple[str, str]:
    """FairGNN's names of the user file and of the relationship file.

    Examples
    --------
    >>> pokec_names("pokec_n")
    ('region_job_2.csv', 'region_job_2_relationship.txt')
    """
    stem = STEMS[name]
    return f"{stem}.csv", f"{stem}_relationship.txt"
