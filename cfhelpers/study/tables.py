"""Tables as CSV for programs, Markdown for readers and LaTeX, with booktabs, for papers.

LaTeX is written by hand: pandas' Styler does not set booktabs' rules between groups of
rows, gives the names of the index a line of their own and scales no table to the page.
"""

import re
from dataclasses import dataclass
from itertools import groupby, takewhile
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from cfhelpers import paths
from cfhelpers.control import Guarantee
from cfhelpers.study.names import DATASETS, DataKind

SCORES = ("aps", "raps", "tps", "cfgnn", "daps")  # in the order of the paper's tables
ARMS = ("Base", "CF", "CF with guarantee")
SHARES = ["beyond", "infinite"]
SETTING = ["dataset", "attribute", "data", "metric", "classwise", "c", "score"]
WIDE = 9  # columns from which a LaTeX table is scaled to the width of the page
LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "–": "--",
    "−": "$-$",
    "’": "'",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "α": r"$\alpha$",
    "δ": r"$\delta$",
    "λ": r"$\lambda$",
    "ỹ": r"$\tilde y$",
    "q̂": r"$\hat q$",
}
# Longer signs first: q̂ is a letter and an accent.
_SIGNS = re.compile("|".join(map(re.escape, sorted(LATEX, key=len, reverse=True))))
_FORMULA = re.compile(r"(\$[^$]+\$)")
_BOLD = re.compile(r"\*\*(.+?)\*\*")


def save(
    frame: pd.DataFrame,
    name: str,
    caption: str = "",
    profile: str = "quick",
    shown: pd.DataFrame | None = None,
) -> Path:
    """Write a table as CSV, Markdown and LaTeX where the profile's tables are.

    Parameters
    ----------
    frame : DataFrame
        What the CSV holds.
    name : str
        The files' name without suffix.
    caption : str
        May hold $formulas$ and **bold**, like all text of the table.
    profile : "quick" or "paper"
    shown : DataFrame, optional
        What Markdown and LaTeX hold; by default `frame`.

    Returns
    -------
    Path
        Of the CSV.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with patch.object(paths, "RESULTS", Path(folder)):
    ...         print(save(pd.DataFrame({"a": [1]}), "tab1_example").read_text())
    a
    1
    """
    if shown is None:
        shown = frame
    texts = {
        "csv": frame.to_csv(index=_has_named_index(frame)),
        "md": f"{caption}\n\n{markdown(shown)}".lstrip(),
        "tex": latex(shown, caption, label=f"tab:{name}"),
    }
    folder = paths.tables(profile)
    for suffix, text in texts.items():
        with paths.atomic_write(folder / f"{name}.{suffix}") as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    return folder / f"{name}.csv"


def markdown(frame: pd.DataFrame) -> str:
    """A table in aligned columns that also reads as plain text.

    Parameters
    ----------
    frame : DataFrame
        Of columns with several levels the outer ones become rows, so that the table stays
        narrow.

    Returns
    -------
    str

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"score": ["aps", "tps"], "size": [2.5, 2.25]})))
    | score | size  |
    | ----- | ----- |
    | aps   | 2.500 |
    | tps   | 2.250 |
    """
    if frame.columns.nlevels > 1:
        inner_order = frame.columns.get_level_values(-1).unique()
        outer_levels = list(range(frame.columns.nlevels - 1))
        frame = _stacked(frame, outer_levels)[inner_order].dropna(how="all")
    table = _as_text(frame)
    rows = []
    for row in [table.header[-1], *_without_repeats(table.body, table.n_index)]:
        rows.append([cell.replace("|", r"\|") for cell in row])
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def latex(frame: pd.DataFrame, caption: str = "", label: str = "") -> str:
    r"""A table for a document with the packages booktabs and multirow.

    A wide table is scaled to the page where graphicx is loaded.

    Parameters
    ----------
    frame : DataFrame
        Of columns with several levels the inner one becomes rows where a page has no room
        for it.
    caption, label : str
        Left out where empty.

    Returns
    -------
    str

    Examples
    --------
    >>> print(latex(pd.DataFrame({"λ": [0.9], "share": ["50%"]})))
    \begin{table}[ht]
    \centering
    \small
    \begin{tabular}{cc}
    \toprule
    $\lambda$ & share \\
    \midrule
    0.900 & 50\% \\
    \bottomrule
    \end{tabular}
    \end{table}
    """
    if frame.columns.nlevels > 1 and frame.index.nlevels + frame.shape[1] >= WIDE:
        frame = _stacked(frame, [-1]).rename_axis(columns=None)
    table = _as_text(frame)
    width = len(table.header[-1])
    alignment = "l" * table.n_index + "c" * (width - table.n_index)
    tabular = [
        f"\\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *_latex_header(table.header),
        r"\midrule",
        *_latex_body(table),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if width >= WIDE:
        tabular = [
            r"\providecommand{\resizebox}[3]{#3}",
            r"\resizebox{\textwidth}{!}{%",
            *tabular,
            "}",
        ]
    lines = [r"\begin{table}[ht]", r"\centering", r"\small"]
    if caption:
        lines.append(f"\\caption{{{_latex(caption)}}}")
    if label:
        lines.append(f"\\label{{{label}}}")
    lines += [*tabular, r"\end{table}", ""]
    return "\n".join(lines)


def _latex_header(header: list[list[str]]) -> list[str]:
    """Lines of the header; equal neighbours of an outer level become one cell."""
    lines = []
    for row in header[:-1]:
        cells = []
        rules = []
        end = 0
        for text, run in groupby(row):
            n_columns = len(list(run))
            start = end + 1
            end += n_columns
            cell = _latex(text)
            if n_columns > 1:
                cell = f"\\multicolumn{{{n_columns}}}{{c}}{{{cell}}}"
                if text:
                    rules.append(f"\\cmidrule(lr){{{start}-{end}}}")
            cells.append(cell)
        lines.append(" & ".join(cells) + r" \\")
        lines.append("".join(rules))
    lines.append(" & ".join(map(_latex, header[-1])) + r" \\")
    return lines


def _latex_body(table: "TextTable") -> list[str]:
    """Lines of the body; equal neighbours in the index become one cell, below a rule."""
    lines = []
    rows = _without_repeats(table.body, table.n_index)
    for place, row in enumerate(rows):
        new_levels = [level for level in range(table.n_index - 1) if row[level]]
        if place > 0 and new_levels:
            outermost = new_levels[0]
            if outermost == 0:
                lines.append(r"\midrule")
            else:
                lines.append(f"\\cmidrule{{{outermost + 1}-{len(row)}}}")
        cells = [_latex(text) for text in row]
        for level in new_levels:
            below = [later[level] for later in rows[place + 1 :]]
            n_blank = len(list(takewhile(lambda text: text == "", below)))
            if n_blank > 0:
                cells[level] = f"\\multirow{{{n_blank + 1}}}{{*}}{{{cells[level]}}}"
        lines.append(" & ".join(cells) + r" \\")
    return lines


def _latex(text: str) -> str:
    """Text with its signs escaped, formulas kept and **bold** set in bold."""
    parts = []
    for part in _FORMULA.split(text):
        if _FORMULA.fullmatch(part):
            parts.append(part)
        else:
            parts.append(_SIGNS.sub(lambda sign: LATEX[sign[0]], part))
    return _BOLD.sub(r"\\textbf{\1}", "".join(parts))


def _stacked(frame: pd.DataFrame, levels: list[int]) -> pd.DataFrame:
    """Some levels of the columns as levels of the index; at least one level must stay."""
    stacked = frame.stack(levels, future_stack=True)
    assert isinstance(stacked, pd.DataFrame)
    return stacked


@dataclass(frozen=True)
class TextTable:
    """Rows of the header and of the body; the first `n_index` columns are the index."""

    header: list[list[str]]
    body: list[list[str]]
    n_index: int


def _as_text(frame: pd.DataFrame) -> TextTable:
    """A data frame as the texts of its cells."""
    n_index = frame.index.nlevels if _has_named_index(frame) else 0
    header = []
    for level in range(frame.columns.nlevels):
        names = frame.columns.get_level_values(level)
        header.append([""] * n_index + list(map(str, names)))
    header[-1][:n_index] = map(str, frame.index.names[:n_index])
    body = []
    for key, values in zip(frame.index, frame.itertuples(index=False), strict=True):
        keys = key if isinstance(key, tuple) else (key,)
        row = [*keys[:n_index], *values]
        body.append(list(map(_cell_text, row)))
    return TextTable(header, body, n_index)


def _has_named_index(frame: pd.DataFrame) -> bool:
    """Whether the index is part of the table, rather than a count of its rows."""
    return frame.index.nlevels > 1 or frame.index.name is not None


def _cell_text(value: Any) -> str:
    """A dash where a value is missing; thousands with commas; three decimals."""
    if isinstance(value, str):
        return str(value)
    if value is None or pd.isna(value):
        return "–"
    if isinstance(value, Integral) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def _without_repeats(body: list[list[str]], n_index: int) -> list[list[str]]:
    """Rows whose outer index is blank where the row above has the same."""
    shown = []
    above: list[str] = []
    for row in body:
        cells = list(row)
        for level in range(n_index - 1):
            if row[: level + 1] == above[: level + 1]:
                cells[level] = ""
        shown.append(cells)
        above = row
    return shown


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and deviations over splits of disparity and efficiency, for every arm.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments`.

    Returns
    -------
    DataFrame
        The columns of SETTING, then arm, quantity, mean, sd and splits. Arms are Base
        (λ = q̂), CF (the paper's rule) and CF with guarantee. `share_beyond` is the share
        of splits with a disparity beyond c, `share_infinite` the share of splits in which
        no finite λ serves, so that some label is in every set.
    """
    rows = rows.assign(infinite=1.0 - rows["feasible"])
    by_rule = rows[rows["guarantee"] == Guarantee.NONE]
    promised = rows[rows["guarantee"] != Guarantee.NONE]
    base = by_rule.assign(
        disparity=by_rule["base_disparity"],
        efficiency=by_rule["base_efficiency"],
        beyond=by_rule["base_beyond"],
        infinite=None,
    )
    parts = []
    for arm, part in zip(ARMS, (base, by_rule, promised), strict=True):
        parts.append(part.assign(arm=arm))
    long = pd.concat(parts).melt(
        [*SETTING, "arm", "split", *SHARES],
        ["disparity", "efficiency"],
        var_name="quantity",
    )
    long[SHARES] = long[SHARES].astype(float).where(long["quantity"] == "disparity")
    for name, order in (("dataset", DATASETS), ("score", SCORES), ("arm", ARMS)):
        long[name] = pd.Categorical(long[name], list(order))
    cells = long.groupby([*SETTING, "arm", "quantity"], observed=True)
    means = cells.agg(
        mean=("value", "mean"), sd=("value", "std"), splits=("split", "nunique")
    )
    shares = cells[SHARES].mean().add_prefix("share_")
    numbers = means.join(shares).round(6).reset_index()
    return numbers.astype({"dataset": str, "score": str, "arm": str})


def disparate_impact_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's Tab 3 and E1–E5 as text: ratio, shares of splits, efficiency.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments`; those of disparate impact are taken.

    Returns
    -------
    DataFrame
        Columns by score and arm; a mean ratio of at least c is in bold.
    """
    numbers = tidy(rows[rows["metric"] == "disparate_impact"])
    return _lay_out(
        numbers,
        is_fair=numbers["mean"] >= numbers["c"],
        disparity_name="Disp. Impact",
        beyond_name="Splits below c",
        index=["dataset", "data", "λ", "quantity"],
        columns=["score", "arm"],
    )


def predictive_parity_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's Tab 4 as text, with single λ and classwise apart.

    Parameters
    ----------
    rows : DataFrame
        Of `experiments`; those of the predictive parity proxy are taken.

    Returns
    -------
    DataFrame
        A column for every c, and one for the base predictor; a mean disparity of at most
        c is in bold.
    """
    numbers = tidy(rows[rows["metric"] == "predictive_parity_proxy"])
    is_base = numbers["arm"] == "Base"
    # The base predictor knows no c: its numbers are the same for each.
    base = numbers[is_base & (numbers["c"] == numbers["c"].min())]
    ours = numbers[~is_base]
    parts = [ours.assign(column=ours["c"].map("c = {:.2f}".format))]
    for arm in ours["arm"].unique():
        parts.append(base.assign(arm=arm, column="Base", share_beyond=None, c=-1.0))
    both = pd.concat(parts, ignore_index=True)
    return _lay_out(
        both,
        is_fair=both["mean"] <= both["c"],
        disparity_name="Proxy disparity",
        beyond_name="Splits above c",
        index=["dataset", "data", "λ", "score", "arm", "quantity"],
        columns=["column"],
    )


def _lay_out(
    numbers: pd.DataFrame,
    is_fair: pd.Series,
    disparity_name: str,
    beyond_name: str,
    index: list[str],
    columns: list[str],
) -> pd.DataFrame:
    """Numbers of `tidy` as texts, by these columns of the index and of the header."""
    if numbers.empty:
        raise ValueError(
            f"rows: found none for a table of {disparity_name!r}; "
            "wanted rows of its metric"
        )
    is_disparity = numbers["quantity"] == "disparity"
    text = _mean_and_sd(numbers)
    quantity_names = {"disparity": disparity_name, "efficiency": "Efficiency"}
    attribute = numbers["attribute"].str.replace("+", " × ")
    sources = zip(numbers["data"], numbers["dataset"], strict=True)
    table = numbers.assign(
        text=text.where(~(is_fair & is_disparity), "**" + text + "**"),
        dataset=numbers["dataset"].map(DATASETS) + ", " + attribute,
        data=[data_words(data, dataset) for data, dataset in sources],
        λ=numbers["classwise"].map({True: "classwise", False: "single"}),
        score=numbers["score"].str.upper(),
        quantity=numbers["quantity"].map(quantity_names),
    )
    disparities = table[is_disparity]
    parts = [disparities, _share_rows(disparities, "share_beyond", beyond_name)]
    if table["share_infinite"].astype(float).any():
        parts.append(_share_rows(disparities, "share_infinite", "Splits with λ = ∞"))
    parts.append(table[~is_disparity])
    table = pd.concat(parts).sort_values(index, key=_order_of_appearance, kind="stable")
    wide = table.pivot(index=index, columns=columns, values="text")
    wide_index = pd.MultiIndex.from_frame(table[index].drop_duplicates())
    header: pd.Index = pd.MultiIndex.from_frame(table[columns].drop_duplicates())
    if len(columns) == 1:
        header = header.get_level_values(0)
    return wide.reindex(index=wide_index, columns=header)


def _mean_and_sd(numbers: pd.DataFrame) -> pd.Series:
    """Texts `mean ± sd`; the mean alone where there is one split."""
    means = numbers["mean"].map("{:.3f}".format, na_action="ignore")
    deviations = [f" ± {sd:.3f}" for sd in numbers["sd"]]
    return means + pd.Series(deviations, numbers.index).where(numbers["sd"].notna(), "")


def _share_rows(disparities: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """A share of splits, in percent, for every disparity."""
    text = disparities[column].map("{:.0%}".format, na_action="ignore")
    return disparities.assign(quantity=name, text=text)


def _order_of_appearance(column: pd.Series) -> pd.Series:
    """Numbers that sort a column's values in the order in which they first occur."""
    codes, _ = pd.factorize(column)
    return pd.Series(codes, column.index)


def data_words(data: str, dataset: str) -> str:
    """What a table says of its records.

    Parameters
    ----------
    data : str
        A `DataKind`.
    dataset : str

    Returns
    -------
    str
        "real", how they differ from the paper's, or "simulated".

    Examples
    --------
    >>> data_words("other", "pokec_n")
    'real, fewer features'
    """
    if data == DataKind.PAPERS:
        return "real"
    if data != DataKind.OTHER:
        return data
    if dataset.startswith("pokec"):
        return "real, fewer features"
    return "real, other year"
