"""Tables as CSV for programs, Markdown for readers and LaTeX, with booktabs, for papers."""

import re
from itertools import groupby, takewhile
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from cfhelpers import paths

DATASETS = {
    "credit": "Credit",
    "acs_income": "ACSIncome",
    "acs_education": "ACSEducation",
}
DATASETS |= {"pokec_n": "Pokec-n", "pokec_z": "Pokec-z"}
SCORES = ("aps", "raps", "tps", "cfgnn", "daps")  # in the order of the paper's tables
ARMS = ("Base", "CF", "CF with guarantee")
SHARES = ["beyond", "infinite"]
SETTING = ["dataset", "attribute", "data", "metric", "classwise", "c", "score"]
LATEX = {sign: f"\\{sign}" for sign in "&%_#{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "–": "--",
}
LATEX |= {
    "^": r"\textasciicircum{}",
    "$": r"\$",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
}
LATEX |= {
    "λ": r"$\lambda$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    "→": r"$\to$",
    "ỹ": r"$\tilde y$",
}
LATEX |= {
    "’": "'",
    "α": r"$\alpha$",
    "δ": r"$\delta$",
    "…": r"\dots{}",
    "−": "$-$",
    "·": r"$\cdot$",
    "q̂": r"$\hat q$",
}
WIDE = 9  # columns from which a LaTeX table is scaled to the width of the page


def save(
    frame: pd.DataFrame,
    name: str,
    caption: str = "",
    profile: str = "quick",
    shown: pd.DataFrame | None = None,
) -> Path:
    """Write <name>.csv from `frame`, and .md and .tex from `shown` (None: `frame`); the path of the CSV.

    Text may hold $formulas$ and **bold**.
    """
    shown, folder = frame if shown is None else shown, paths.tables(profile)
    texts = {
        "csv": frame.to_csv(index=_is_named(frame)),
        "md": f"{caption}\n\n{markdown(shown)}".lstrip(),
    }
    texts["tex"] = latex(shown, caption, label=f"tab:{name}")
    for suffix, text in texts.items():
        with paths.atomic_write(folder / f"{name}.{suffix}") as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    return folder / f"{name}.csv"


def markdown(frame: pd.DataFrame) -> str:
    """A table in aligned columns that also reads as plain text; outer columns become rows, so that it stays narrow."""
    if frame.columns.nlevels > 1:
        order = frame.columns.get_level_values(-1).unique()
        frame = frame.stack(list(range(frame.columns.nlevels - 1)), future_stack=True)[
            order
        ].dropna(how="all")
    header, body, depth = _as_text(frame)
    rows = [header[-1], *_without_repeats(body, depth)]
    rows = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def latex(frame: pd.DataFrame, caption: str = "", label: str = "") -> str:
    """A table for a document with the packages booktabs and multirow; a wide one is scaled where graphicx is loaded.

    Inner columns become rows where a page has no room for them.
    """
    if frame.columns.nlevels > 1 and frame.index.nlevels + frame.shape[1] >= WIDE:
        frame = frame.stack(-1, future_stack=True).rename_axis(columns=None)
    header, body, depth = _as_text(frame)
    lines = []
    for level, row in enumerate(header):
        runs = [(text, len(list(run))) for text, run in groupby(row)]
        if last := level == len(header) - 1:
            runs = [(text, 1) for text in row]
        cells = [
            _latex(text) if n == 1 else f"\\multicolumn{{{n}}}{{c}}{{{_latex(text)}}}"
            for text, n in runs
        ]
        ends = [sum(n for _, n in runs[: at + 1]) for at in range(len(runs))]
        rules = [
            f"\\cmidrule(lr){{{e - n + 1}-{e}}}"
            for e, (t, n) in zip(ends, runs, strict=True)
            if t and n > 1
        ]
        lines += [" & ".join(cells) + r" \\", *([] if last else ["".join(rules)])]
    lines.append(r"\midrule")
    shown = _without_repeats(body, depth)
    for place, row in enumerate(shown):
        starts = [level for level in range(depth - 1) if row[level]]
        if place and starts:
            lines.append(
                f"\\cmidrule{{{starts[0] + 1}-{len(row)}}}" if starts[0] else r"\midrule"
            )
        cells = [_latex(text) for text in row]
        for level in starts:
            below = [row[level] for row in shown[place + 1 :]]
            run = 1 + sum(1 for _ in takewhile(lambda text: not text, below))
            cells[level] = (
                f"\\multirow{{{run}}}{{*}}{{{cells[level]}}}" if run > 1 else cells[level]
            )
        lines.append(" & ".join(cells) + r" \\")
    width = len(header[-1])
    tabular = [
        f"\\begin{{tabular}}{{{'l' * depth}{'c' * (width - depth)}}}",
        r"\toprule",
        *lines,
    ]
    tabular += [r"\bottomrule", r"\end{tabular}"]
    if width >= WIDE:
        tabular = [
            r"\providecommand{\resizebox}[3]{#3}",
            r"\resizebox{\textwidth}{!}{%",
            *tabular,
            "}",
        ]
    titles = [f"\\caption{{{_latex(caption)}}}"] * bool(caption) + [
        f"\\label{{{label}}}"
    ] * bool(label)
    return (
        "\n".join(
            [
                r"\begin{table}[ht]",
                r"\centering",
                r"\small",
                *titles,
                *tabular,
                r"\end{table}",
            ]
        )
        + "\n"
    )


def _is_named(frame: pd.DataFrame) -> bool:
    """Whether the index is part of the table, rather than a count of its rows."""
    return frame.index.nlevels > 1 or frame.index.name is not None


def _as_text(frame: pd.DataFrame) -> tuple[list[list[str]], list[list[str]], int]:
    """Header rows, body rows, and how many of the columns are the index."""
    depth = frame.index.nlevels if _is_named(frame) else 0
    columns = [
        column if isinstance(column, tuple) else (column,) for column in frame.columns
    ]
    header = [
        [""] * depth + [str(column[level]) for column in columns]
        for level in range(frame.columns.nlevels)
    ]
    header[-1][:depth] = [str(name) for name in frame.index.names[:depth]]
    index = [key if isinstance(key, tuple) else (key,) for key in frame.index]
    body = [
        [*key[:depth], *row]
        for key, row in zip(index, frame.itertuples(index=False), strict=True)
    ]
    return header, [list(map(_text, row)) for row in body], depth


def _text(value: Any) -> str:
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return "–"
    if isinstance(value, Integral) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _without_repeats(body: list[list[str]], depth: int) -> list[list[str]]:
    """Rows whose index, but for its last column, is blank where the row above has the same."""
    above, shown = [[], *body[:-1]], []
    for row, before in zip(body, above, strict=True):
        same = [
            level < depth - 1 and row[: level + 1] == before[: level + 1]
            for level in range(len(row))
        ]
        shown.append(
            ["" if blank else text for text, blank in zip(row, same, strict=True)]
        )
    return shown


def _latex(text: str) -> str:
    """Text with its signs escaped, formulas kept and **bold** set in bold."""
    signs = re.compile("|".join(map(re.escape, sorted(LATEX, key=len, reverse=True))))
    parts = re.split(r"(\$[^$]+\$)", text)
    parts[::2] = [signs.sub(lambda sign: LATEX[sign[0]], part) for part in parts[::2]]
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", "".join(parts))


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, sd and number of splits of disparity and efficiency for every setting and arm, from rows of `experiments`.

    Arms: Base (λ = q̂), CF (the paper's rule), CF with guarantee. `share_beyond`: of splits with a disparity beyond c;
    `share_infinite`: of splits in which no finite λ serves, so that some label is in every set.
    """
    rows = rows.assign(infinite=1.0 - rows["feasible"])
    plain = rows[rows["guarantee"] == "none"]
    base = plain.assign(
        **{name: plain[f"base_{name}"] for name in ("disparity", "efficiency", "beyond")}
    )
    base["infinite"] = None
    arms = dict(zip(ARMS, (base, plain, rows[rows["guarantee"] != "none"]), strict=True))
    long = pd.concat([part.assign(arm=arm) for arm, part in arms.items()])
    long = long.melt(
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
    means = means.join(cells[SHARES].mean().add_prefix("share_")).round(6)
    return means.reset_index().astype({"dataset": str, "score": str, "arm": str})


def disparate_impact_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's Tab 3 and E1–E5 as text: ratio, shares of splits, efficiency; columns score and arm."""
    numbers = tidy(rows[rows["metric"] == "disparate_impact"])
    fair, names = numbers["mean"] >= numbers["c"], ("Disp. Impact", "Splits below c")
    return _layout(
        numbers, fair, names, ["dataset", "data", "λ", "quantity"], ["score", "arm"]
    )


def predictive_parity_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's Tab 4 as text, single λ and classwise apart: a column for every c, and one for the base predictor."""
    numbers = tidy(rows[rows["metric"] == "predictive_parity_proxy"])
    base = numbers[(numbers["arm"] == "Base") & (numbers["c"] == numbers["c"].min())]
    ours = numbers[numbers["arm"] != "Base"].assign(
        column=lambda table: table["c"].map("c = {:.2f}".format)
    )
    copies = [
        base.assign(arm=arm, column="Base", share_beyond=None, c=-1.0)
        for arm in ours["arm"].unique()
    ]
    both = pd.concat([ours, *copies], ignore_index=True)
    names = ("Proxy disparity", "Splits above c")
    index = ["dataset", "data", "λ", "score", "arm", "quantity"]
    return _layout(both, both["mean"] <= both["c"], names, index, ["column"])


def _layout(
    numbers: pd.DataFrame,
    fair: pd.Series,
    names: tuple,
    index: list[str],
    columns: list[str],
) -> pd.DataFrame:
    """Text `mean ± sd`, in bold where a disparity is `fair`, and shares of splits, by these index and column names."""
    if numbers.empty:
        raise ValueError(
            f"rows: found none for a table of {names[0]!r}; wanted rows of its metric"
        )
    text = numbers["mean"].map("{:.3f}".format, na_action="ignore")
    text += numbers["sd"].map(lambda sd: "" if pd.isna(sd) else f" ± {sd:.3f}")
    is_disparity = numbers["quantity"] == "disparity"
    table = numbers.assign(
        text=text.where(~(fair & is_disparity), "**" + text + "**"),
        dataset=numbers["dataset"].map(DATASETS)
        + ", "
        + numbers["attribute"].str.replace("+", " × "),
        data=[
            data_words(*pair)
            for pair in zip(numbers["data"], numbers["dataset"], strict=True)
        ],
        λ=numbers["classwise"].map({True: "classwise", False: "single"}),
        score=numbers["score"].str.upper(),
        quantity=is_disparity.map({True: names[0], False: "Efficiency"}),
    )
    parts = [table[is_disparity]]
    for name, words in (
        ("share_beyond", names[1]),
        ("share_infinite", "Splits with λ = ∞"),
    ):
        if table[name].astype(float).any() or name == "share_beyond":
            text = table[name].map("{:.0%}".format, na_action="ignore")
            parts.append(table[is_disparity].assign(quantity=words, text=text))
    table = pd.concat([*parts, table[~is_disparity]])
    table = table.sort_values(
        index,
        key=lambda column: pd.Series(pd.factorize(column)[0], column.index),
        kind="stable",
    )
    wide = table.pivot(index=index, columns=columns, values="text")
    rows, heads = (
        pd.MultiIndex.from_frame(table[names_].drop_duplicates())
        for names_ in (index, columns)
    )
    return wide.reindex(
        index=rows, columns=heads if len(columns) > 1 else heads.get_level_values(0)
    )


def data_words(data: str, dataset: str) -> str:
    """What a table says of its records: real, or how they differ from the paper's."""
    other = "real, fewer features" if dataset.startswith("pokec") else "real, other year"
    return {"the paper's": "real", "other": other}.get(data, data)
