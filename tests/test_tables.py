"""Tables: numbers for programs, text for readers, LaTeX that a paper can take in."""

import re

import numpy as np
import pandas as pd
import pytest

from cfhelpers import paths
from cfhelpers.study import tables

SCORES = ("aps", "tps", "raps")


def rows_for(
    dataset,
    attribute,
    data="simulated",
    scores=SCORES,
    metric="disparate_impact",
    cs=(0.8,),
    splits=4,
):
    """Random rows in the schema of `experiments`."""
    rng = np.random.default_rng(0)
    settings = [
        {
            "dataset": dataset,
            "attribute": attribute,
            "data": data,
            "metric": metric,
            "c": c,
        }
        | {"score": score, "classwise": classwise, "guarantee": guarantee, "split": split}
        for score in scores
        for classwise in (True, False)
        for guarantee in ("none", "fixed-sequence")
        for c in cs
        for split in range(splits)
    ]
    rows = pd.DataFrame(settings)
    for name in ("disparity", "efficiency"):
        rows[name] = rng.random(len(rows))
        rows[f"base_{name}"] = rows.groupby(["score", "split"])[name].transform(
            "first"
        )  # the same for every rule
    for prefix in ("", "base_"):
        compare = pd.Series.lt if metric == "disparate_impact" else pd.Series.gt
        rows[f"{prefix}beyond"] = compare(rows[f"{prefix}disparity"], rows["c"])
    return rows.assign(feasible=True)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    return tmp_path / "tables"


def written(folder, name):
    return {
        suffix: (folder / f"{name}.{suffix}").read_text(encoding="utf-8")
        for suffix in ("csv", "md", "tex")
    }


def columns_of(line):
    """How many columns a line of a tabular spans."""
    cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
    return sum(
        int(m[1]) if (m := re.match(r"\s*\\multicolumn\{(\d+)\}", cell)) else 1
        for cell in cells
    )


def check_latex(text):
    """Environments and braces match, rows have the declared columns, multirows fit."""
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    bare = re.sub(r"\\[{}]", "", text)
    assert not opened and bare.count("{") == bare.count("}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0 and text.isascii()
    declared = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert lines and all(columns_of(line) == len(declared) for line in lines)
    for at, line in enumerate(lines):
        for cell, below in enumerate(re.split(r"(?<!\\)&", line)):
            if m := re.search(r"\\multirow\{(\d+)\}", below):
                covered = lines[at + 1 : at + int(m[1])]
                assert len(covered) == int(m[1]) - 1
                assert all(
                    not re.split(r"(?<!\\)&", other)[cell].strip() for other in covered
                )


def test_a_table_is_written_as_csv_markdown_and_latex_and_nothing_else(results):
    frame = pd.DataFrame({"name": ["a", "b"], "value": [0.5, None]})
    assert tables.save(frame, "tab9_test", "A caption") == results / "tab9_test.csv"
    assert sorted(path.name for path in results.iterdir()) == [
        "tab9_test.csv",
        "tab9_test.md",
        "tab9_test.tex",
    ]
    tables.save(frame, "tab9_test", profile="paper")
    assert sorted(path.name for path in (results / "paper").iterdir()) == [
        "tab9_test.csv",
        "tab9_test.md",
        "tab9_test.tex",
    ]
    with pytest.raises(ValueError, match="profile: found 'full'"):
        tables.save(frame, "tab9_test", profile="full")


def test_the_csv_holds_the_numbers_and_the_rest_what_is_shown(results):
    numbers = pd.DataFrame({"mean": [1 / 3], "sd": [1e-9]})
    tables.save(numbers, "tab9_test", shown=pd.DataFrame({"x": ["0.333 ± 0.000"]}))
    texts = written(results, "tab9_test")
    pd.testing.assert_frame_equal(pd.read_csv(results / "tab9_test.csv"), numbers)
    assert (
        "0.333 ± 0.000" in texts["md"]
        and r"0.333 $\pm$ 0.000" in texts["tex"]
        and "mean" not in texts["md"]
    )


def test_an_index_with_a_name_is_a_column_and_a_count_of_rows_is_not(results):
    for frame in (
        pd.DataFrame({"b": [2]}, index=pd.Index(["x"], name="a")),
        pd.DataFrame({"a": ["x"], "b": [2]}),
    ):
        tables.save(frame, "tab9_test")
        texts = written(results, "tab9_test")
        assert texts["csv"] == "a,b\nx,2\n"
        assert texts["md"] == "| a   | b   |\n| --- | --- |\n| x   | 2   |\n"
        assert r"x & 2 \\" in texts["tex"] and r"a & b \\" in texts["tex"]


def test_markdown_reads_as_text():
    lines = tables.markdown(
        pd.DataFrame({"long name": ["a|b", "c"], "n": [10, 2]})
    ).splitlines()
    assert (
        len({len(line) for line in lines}) == 1
        and len({line.count(" | ") for line in lines}) == 1
    )
    assert lines[2] == r"| a\|b      | 10  |"


def test_missing_values_are_dashes_floats_have_three_decimals_and_counts_have_commas():
    frame = pd.DataFrame(
        {
            "a": [0.12345, float("nan")],
            "b": pd.array([1234, None], "Int64"),
            "c": [None, True],
        }
    )
    lines = tables.markdown(frame).splitlines()[2:]
    assert lines == ["| 0.123 | 1,234 | –    |", "| –     | –     | True |"]


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("50% of a_b & #1", r"50\% of a\_b \& \#1"),
        ("{x} \\ ~ ^", r"\{x\} \textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("**0.8 ± 0.1**", r"\textbf{0.8 $\pm$ 0.1}"),
        (
            r"$\Pr[\tilde y \in C_\lambda]$ & λ",
            r"$\Pr[\tilde y \in C_\lambda]$ \& $\lambda$",
        ),
        ("costs $5", r"costs \$5"),
        ("q̂ – ỹ", r"$\hat q$ -- $\tilde y$"),
    ],
)
def test_latex_escapes_text_and_keeps_formulas(text, wanted):
    assert tables._latex(text) == wanted


@pytest.mark.parametrize("scores", [SCORES, tables.SCORES])
def test_latex_is_well_formed_with_merged_rows_and_columns(scores):
    rows = pd.concat(
        [
            rows_for("pokec_n", name, scores=scores)
            for name in ("region", "gender", "region+gender")
        ]
    )
    text = tables.latex(tables.disparate_impact_table(rows), "50% of λ_1 & more", "tab:x")
    check_latex(text)
    assert (
        text.count(r"\multirow{9}{*}{single}") == 3
        and text.count(r"\multirow{18}{*}{Pokec-n, ") == 3
    )
    names = [name.upper() for name in tables.SCORES if name in scores]
    assert (
        "multicolumn" not in text and " & ".join(["arm", *names]) in text
    )  # arms became rows
    assert text.count(r"\multirow{3}{*}{Efficiency} & Base") == 6
    assert (
        text.count("\\midrule\n") == 3
        and text.count(f"\\cmidrule{{3-{5 + len(scores)}}}\n") == 3
    )
    order = [
        text.index(rule)
        for rule in (
            r"\caption",
            r"\label{tab:x}",
            r"\toprule",
            r"\midrule",
            r"\bottomrule",
        )
    ]
    assert order == sorted(order)


def test_latex_keeps_columns_of_two_levels_where_there_is_room():
    text = tables.latex(
        tables.disparate_impact_table(rows_for("credit", "age", scores=("tps",)))
    )
    check_latex(text)
    assert (
        text.count(r"\multicolumn{3}{c}{TPS}") == 1 == text.count(r"\cmidrule(lr){5-7}")
        and "resizebox" not in text
    )
    assert text.count(r"\multirow{3}{*}{single}") == 1


def test_rows_are_merged_only_where_they_lie_together():
    index = pd.MultiIndex.from_tuples(
        [("x", 1), ("x", 2), ("y", 1), ("x", 3)], names=["a", "b"]
    )
    text = tables.latex(pd.DataFrame({"c": range(4)}, index=index))
    check_latex(text)
    assert (
        text.count(r"\multirow{2}{*}{x}") == text.count("multirow") == 1
        and text.count(r"\midrule") == 3
    )


def test_a_latex_table_without_index_has_no_rules_between_its_rows():
    text = tables.latex(pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 2, 3]}))
    check_latex(text)
    assert (
        text.count(r"\midrule") == 1 and "multirow" not in text and "caption" not in text
    )


def test_tidy_gives_mean_sd_splits_and_share_of_every_arm():
    rows = rows_for("credit", "age", "the paper's")
    numbers = tables.tidy(rows).set_index(["classwise", "score", "arm", "quantity"])
    assert len(numbers) == 2 * 3 * 3 * 2
    for classwise in (True, False):
        for score in SCORES:
            chosen = rows[(rows["classwise"] == classwise) & (rows["score"] == score)]
            plain, sure = (
                chosen[chosen["guarantee"] == g] for g in ("none", "fixed-sequence")
            )
            for arm, part, prefix in (
                ("Base", plain, "base_"),
                ("CF", plain, ""),
                ("CF with guarantee", sure, ""),
            ):
                ratios, sizes = (
                    part[f"{prefix}{name}"].to_numpy()
                    for name in ("disparity", "efficiency")
                )
                row = numbers.loc[classwise, score, arm, "disparity"]
                wanted = (
                    ratios.mean(),
                    ratios.std(ddof=1),
                    len(ratios),
                    np.mean(ratios < 0.8),
                )
                assert np.allclose(
                    row[["mean", "sd", "splits", "share_beyond"]].astype(float), wanted
                )
                row = numbers.loc[classwise, score, arm, "efficiency"]
                assert np.isclose(row["mean"], sizes.mean()) and np.isnan(
                    row["share_beyond"]
                )


def test_the_table_of_disparate_impact_shows_the_numbers_bold_from_four_fifths():
    rows = rows_for("credit", "age", "the paper's")
    rows.loc[(rows["score"] == "tps") & (rows["guarantee"] == "none"), "disparity"] = 0.8
    rows.loc[(rows["score"] == "aps") & (rows["guarantee"] == "none"), "disparity"] = [
        0.7,
        0.8,
        0.8,
        0.8,
    ] * 2
    shown = tables.disparate_impact_table(rows)
    assert list(shown.columns.get_level_values(0).unique()) == ["APS", "RAPS", "TPS"]
    assert list(shown.columns[:3].get_level_values(1)) == list(tables.ARMS)
    place = ("Credit, age", "real")
    names = ("Disp. Impact", "Splits below c", "Efficiency")
    assert [*shown.index][:3] == [(*place, "single", name) for name in names]
    assert (
        shown.loc[(*place, "classwise", "Disp. Impact"), ("TPS", "CF")]
        == "**0.800 ± 0.000**"
    )
    assert (
        shown.loc[(*place, "classwise", "Disp. Impact"), ("APS", "CF")] == "0.775 ± 0.050"
    )
    sizes = rows.query("score == 'raps' and classwise and guarantee == 'none'")[
        "efficiency"
    ]
    text = f"{sizes.mean():.3f} ± {sizes.std():.3f}"
    assert shown.loc[(*place, "classwise", "Efficiency"), ("RAPS", "CF")] == text
    shares = shown.xs("Splits below c", level="quantity")
    below = rows.query("score == 'raps' and not classwise and guarantee != 'none'")[
        "beyond"
    ].mean()
    assert shares.loc[(*place, "single"), ("RAPS", "CF with guarantee")] == f"{below:.0%}"


def test_a_table_says_in_how_many_splits_no_finite_threshold_serves():
    rows = rows_for("credit", "age")
    assert "Splits with λ = ∞" not in tables.disparate_impact_table(
        rows
    ).index.get_level_values("quantity")
    some = (
        (rows["guarantee"] != "none")
        & (rows["split"] == 0)
        & (rows["score"] == "tps")
        & rows["classwise"]
    )
    shown = tables.disparate_impact_table(rows.assign(feasible=~some))
    line = shown.loc[("Credit, age", "simulated", "classwise", "Splits with λ = ∞")]
    assert (
        line["TPS"].fillna("–").to_list() == ["–", "0%", "25%"]
        and line["APS", "CF with guarantee"] == "0%"
    )
    numbers = tables.tidy(rows.assign(feasible=~some)).query("share_infinite > 0")
    assert numbers[
        ["score", "arm", "quantity", "classwise", "share_infinite"]
    ].to_numpy().tolist() == [["tps", "CF with guarantee", "disparity", True, 0.25]]


def test_datasets_come_in_the_order_of_the_paper_and_a_score_that_was_not_run_is_a_dash():
    rows = pd.concat(
        [
            rows_for("acs_income", "race", "other"),
            rows_for("credit", "age", scores=tables.SCORES),
        ]
    )
    shown = tables.disparate_impact_table(rows)
    assert [name for name, _ in shown.groupby(level="dataset", sort=False)] == [
        "Credit, age",
        "ACSIncome, race",
    ]
    assert [*shown.columns.get_level_values(0).unique()] == [
        "APS",
        "RAPS",
        "TPS",
        "CFGNN",
        "DAPS",
    ]
    assert shown.xs("ACSIncome, race")["CFGNN"].isna().all(axis=None)
    lines = [line for line in tables.latex(shown).splitlines() if "Disp. Impact" in line]
    assert [line.count("--") for line in lines] == [0, 0, 2, 2]
    assert "–" not in tables.markdown(shown) and tables.markdown(shown).count("DAPS") == 6


@pytest.mark.parametrize(
    "dataset, data, word",
    [
        ("credit", "the paper's", "real"),
        ("acs_income", "other", "real, other year"),
        ("pokec_n", "other", "real, fewer features"),
        ("pokec_z", "simulated", "simulated"),
    ],
)
def test_every_table_says_what_data_it_is_from(dataset, data, word):
    shown = tables.disparate_impact_table(rows_for(dataset, "race", data))
    assert set(shown.index.get_level_values("data")) == {word}
    assert word in tables.markdown(shown) and word in tables.latex(shown)


def test_markdown_puts_the_scores_below_each_other():
    shown = tables.disparate_impact_table(rows_for("credit", "age"))
    lines = tables.markdown(shown).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == [
        *shown.index.names,
        "score",
        *tables.ARMS,
    ]
    assert len(lines) == 2 + len(shown) * 3 and sum(
        "APS" in line and "RAPS" not in line for line in lines
    ) == len(shown)


def test_the_table_of_the_proxy_keeps_single_and_classwise_apart_and_has_the_base_once():
    rows = rows_for(
        "acs_education",
        "race",
        metric="predictive_parity_proxy",
        cs=(0.05, 0.10, 0.15, 0.20),
    )
    rows.loc[rows["score"] == "tps", "disparity"] = 0.08
    shown = tables.predictive_parity_table(rows)
    assert [*shown.columns] == ["c = 0.05", "c = 0.10", "c = 0.15", "c = 0.20", "Base"]
    place = ("ACSEducation, race", "simulated")
    assert [*shown.loc[(*place, "single", "TPS", "CF", "Proxy disparity")]][:2] == [
        "0.080 ± 0.000",
        "**0.080 ± 0.000**",
    ]
    for classwise, word in ((False, "single"), (True, "classwise")):
        chosen = rows[rows["classwise"] == classwise].query(
            "score == 'aps' and guarantee == 'none'"
        )
        row = shown.loc[(*place, word, "APS", "CF", "Efficiency")]
        sizes = chosen.query("c == 0.15")["efficiency"]
        assert row["c = 0.15"] == f"{sizes.mean():.3f} ± {sizes.std():.3f}"
        base = chosen.drop_duplicates("split")["base_efficiency"]
        assert row["Base"] == f"{base.mean():.3f} ± {base.std():.3f}"
    assert shown.xs("Splits above c", level="quantity")["Base"].isna().all()
    check_latex(tables.latex(shown))


def test_a_single_split_has_no_deviation():
    shown = tables.disparate_impact_table(rows_for("credit", "age", splits=1))
    assert not shown.map(lambda text: "±" in text).any(
        axis=None
    ) and not shown.isna().any(axis=None)


def test_a_disparity_that_is_nowhere_defined_is_missing():
    rows = rows_for("credit", "age")
    rows.loc[rows["score"] == "tps", "disparity"] = np.nan
    shown = tables.disparate_impact_table(rows).xs("Disp. Impact", level="quantity")
    assert (
        shown["TPS", "CF"].isna().all()
        and shown["TPS", "Base"].notna().all()
        and shown["APS"].notna().all(axis=None)
    )


def test_rows_of_another_metric_make_no_table():
    rows = rows_for("credit", "age", metric="demographic_parity", cs=(0.1,))
    with pytest.raises(ValueError, match="rows: found none for a table of 'Disp"):
        tables.disparate_impact_table(rows)
