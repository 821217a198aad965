"""Files of predictions: what is read, what is refused, and the report made of them."""

import math
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from cfhelpers import auditing, control, paths, predictor, scores
from cfhelpers.auditing import audit, audit_file, command, files, report

OPTIONS = {
    "label": "digit",
    "groups": "ink,height",
    "metrics": "equal_opportunity, disparate_impact",
}


@pytest.fixture(scope="module")
def digits() -> pd.DataFrame:
    """Predictions of a scikit-learn model on handwritten digits, its own data.

    Groups are by the amount of ink and by where it is; some rows have none.
    """
    images, y = load_digits(return_X_y=True)
    probs = cross_val_predict(
        LogisticRegression(C=0.01, max_iter=60),
        images / 16,
        y,
        cv=3,
        method="predict_proba",
    )
    frame = pd.DataFrame(probs, columns=[f"prob_{k}" for k in range(10)])
    frame["digit"] = y
    frame["ink"] = np.where(images.sum(axis=1) < 310, "light", "heavy")
    frame["height"] = np.where(
        images[:, :32].sum(axis=1) > images[:, 32:].sum(axis=1), "upper", "lower"
    )
    frame.loc[::50, "ink"] = None
    return frame


@pytest.fixture(scope="module")
def digits_csv(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.csv"
    digits.to_csv(path, index=False)
    return path


def test_the_audit_of_a_file_is_that_of_an_independent_computation(digits, digits_csv):
    """Everything again in plain pandas: split, sets, counts, intervals, sizes."""
    found = audit_file(digits_csv, **OPTIONS, alpha=0.05, seed=3)
    n = len(digits)
    calibration = np.random.default_rng(3).permutation(n) < n // 2
    values = 1 - digits.filter(like="prob_").to_numpy()
    true = np.sort(values[np.arange(n), digits["digit"]][calibration])
    cut = true[math.ceil((calibration.sum() + 1) * 0.95) - 1]
    assert (
        found.threshold == pytest.approx([cut], abs=1e-12)
        and (found.audited == ~calibration).all()
    )
    rest = digits[~calibration].assign(ink=digits["ink"].fillna("missing"))
    sets = pd.DataFrame(values[~calibration] <= cut, index=rest.index)
    assert list(found.audits) == ["ink", "height", "ink × height"]
    both = rest["ink"] + " · " + rest["height"]
    for by, groups in (
        ("ink", rest["ink"]),
        ("height", rest["height"]),
        ("ink × height", both),
    ):
        one = found.audits[by]
        assert one.sizes["count"].to_dict() == groups.value_counts().to_dict()
        sizes = sets.sum(axis=1).groupby(groups).mean()
        assert one.sizes["mean set size"].to_dict() == pytest.approx(sizes.to_dict())
        for row in one.table.itertuples():
            cell = (groups == row.group) & (
                (rest["digit"] == int(row.label)) | (row.metric == "disparate_impact")
            )
            k, count = int(sets.loc[cell, int(row.label)].sum()), int(cell.sum())
            assert row[5] == count  # "count" is a method of tuples
            if count:
                exact = binomtest(k, count).proportion_ci(0.95, method="exact")
                assert row[6:] == pytest.approx(
                    (k / count, exact.low, exact.high), abs=1e-9
                )
            else:
                assert row[6:] == pytest.approx((math.nan, 0, 1), nan_ok=True)
        assert one.table["label"].unique().tolist() == [str(k) for k in range(1, 10)]
        rates = one.table.groupby(["metric", "label"])["coverage"].agg(["min", "max"])
        opportunity, impact = (
            rates.loc["equal_opportunity"],
            rates.loc["disparate_impact"],
        )
        assert one.disparities["disparity"].tolist() == pytest.approx(
            [
                (opportunity["max"] - opportunity["min"]).max(),
                (impact["min"] / impact["max"]).min(),
            ]
        )
    assert set(found.audits["ink"].sizes.index) == {"light", "heavy", "missing"}


def test_one_file_in_many_forms_gives_one_audit(digits, digits_csv, tmp_path):
    def disparities(frame=digits, name="a.csv", separator=",", **options):
        path = tmp_path / name
        frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(
            path, index=False, sep=separator
        )
        return {
            by: one.disparities
            for by, one in audit_file(path, **OPTIONS | options).audits.items()
        }

    def same(one, other):
        assert one.keys() == other.keys()
        for by in one:
            pd.testing.assert_frame_equal(one[by], other[by], check_dtype=False)

    wanted = disparities()
    same(
        wanted,
        {
            by: one.disparities
            for by, one in audit_file(digits_csv, **OPTIONS).audits.items()
        },
    )
    same(wanted, disparities(name="a.parquet"))
    same(wanted, disparities(separator=";"))
    same(wanted, disparities(digits.astype({"digit": float})))
    same(
        wanted,
        disparities(digits.rename(columns=lambda name: name.replace("prob_", "P_"))),
    )
    renamed = digits.rename(columns=lambda name: name.replace("prob_", "chance "))
    words = renamed.assign(digit="chance " + digits["digit"].astype(str))
    columns = ", ".join(f"chance {k}" for k in range(10))
    compared = ", ".join(f"chance {k}" for k in range(1, 10))
    named = disparities(words, columns=columns, positive_labels=compared)
    assert named["ink"]["upper"].tolist() == wanted["ink"]["upper"].tolist()

    # The same split said in a column; the same sets as scores with a threshold, and as
    # sets.
    found = audit_file(digits_csv, **OPTIONS)
    marked = digits.assign(part=np.where(found.calibration, "calibration", "Test"))
    same(wanted, disparities(marked))
    rest = digits[found.audited].drop(columns=[f"prob_{k}" for k in range(10)])
    as_scores = rest.join(
        pd.DataFrame(found.scores, columns=[f"score_{k}" for k in range(10)])
    )
    same(wanted, disparities(as_scores, threshold=float(found.threshold[0])))
    same(
        wanted,
        disparities(as_scores, threshold=", ".join([str(found.threshold[0])] * 10)),
    )
    for kind in (int, bool):
        table = pd.DataFrame(
            found.scores <= found.threshold, columns=[f"set_{k}" for k in range(10)]
        )
        same(wanted, disparities(rest.join(table.astype(kind))))


def test_rounded_probabilities_are_taken_for_what_they_are(digits, tmp_path):
    path = tmp_path / "rounded.csv"
    digits.round(2).to_csv(path, index=False)
    found = audit_file(path, **OPTIONS)
    assert np.allclose((1 - found.scores).sum(axis=1), 1)


@pytest.mark.parametrize("score", ["aps", "raps"])
def test_randomised_scores_belong_to_the_person(digits, digits_csv, score, tmp_path):
    """The same in any order of the rows: by the row's probabilities, or by its id."""
    found = audit_file(digits_csv, **OPTIONS, score=score, seed=5)
    probs = digits.filter(like="prob_").to_numpy()
    by_content = scores.person_u(probs.round(predictor.DIGITS), 5)
    function = getattr(scores, score)
    assert found.scores == pytest.approx(function(probs, by_content), abs=1e-12)
    assert {"mean set size", "threshold"} <= set(
        found.fixes("height", "disparate_impact").columns
    )
    turned = digits.assign(person=[f"no. {i}" for i in range(len(digits))])[::-1]
    turned.to_csv(tmp_path / "turned.csv", index=False)
    again = audit_file(tmp_path / "turned.csv", **OPTIONS, score=score, seed=5)
    assert np.array_equal(again.scores[::-1], found.scores)
    named = audit_file(
        tmp_path / "turned.csv", **OPTIONS, score=score, seed=5, id="person"
    )
    by_id = scores.person_u(turned["person"][::-1].tolist(), 5)
    assert named.scores[::-1] == pytest.approx(function(probs, by_id), abs=1e-12)
    assert not np.array_equal(by_id, by_content)


def test_a_row_without_an_id_is_refused(bad_csv):
    frame = GOOD.assign(person=[*range(39), None])
    with pytest.raises(
        ValueError, match=r"^column 'person', row 40: found nothing; want"
    ):
        audit_file(bad_csv(frame), id="person", score="aps")


def test_labels_with_names_are_all_compared_and_numbers_but_0(bad_csv):
    assert audit_file(bad_csv(GOOD)).positive_labels == ["no", "yes"]
    numbers = {"p_no": "p_1", "p_yes": "p_0"}
    numbered = GOOD.rename(columns=numbers).assign(y=[1, 0] * 20)
    assert audit_file(bad_csv(numbered)).positive_labels == ["1"]
    assert audit_file(bad_csv(numbered), positive_labels="all").positive_labels == [
        "1",
        "0",
    ]
    assert "labels compared: all, which are no, yes" in str(audit_file(bad_csv(GOOD)))


def test_what_holds_for_every_verdict_is_said_once(digits_csv):
    text = str(audit_file(digits_csv, **OPTIONS))
    assert text.count("audit of") == 3 and text.count("not jointly") == 1


def test_a_group_called_missing_is_told_from_rows_without_a_group(bad_csv):
    frame = GOOD.assign(group=["a", "missing", None, "a"] * 10)
    found = audit_file(bad_csv(frame))
    assert found.groups["group"].names == ["a", "missing", "missing (no value)"]


@pytest.mark.filterwarnings("ignore:closeness:UserWarning")
@pytest.mark.parametrize(
    "by, metric",
    [
        ("height", "equal_opportunity"),
        ("height", "disparate_impact"),
        ("ink × height", "equal_opportunity"),
        ("height", "overall_accuracy_equality"),
        ("height", "predictive_parity"),
    ],
)
def test_fixes_are_the_thresholds_of_the_search_and_their_price_is_that_of_the_other_rows(
    digits_csv, by, metric
):
    found = audit_file(
        digits_csv, **OPTIONS | {"metrics": metric, "closeness": "0.3"}, delta=0.2
    )
    closeness = 0.3
    fixes = found.fixes(by, metric)
    names = np.array(found.groups[by].names)[found.groups[by].codes]
    assert fixes.iloc[0]["disparity"] == found.audits[by].disparities["disparity"].iloc[0]
    assert len(fixes) == (3 if metric == "overall_accuracy_equality" else 5)
    cal, new = found.calibration, ~found.calibration
    for (kind, guarantee), row in fixes.iloc[1:].iterrows():
        wanted = control.find_threshold(
            found.scores[cal], found.y[cal], names[cal], metric, closeness,
            classwise=kind == "one per label", guarantee=guarantee, delta=0.2,
        )  # fmt: skip
        assert (row["threshold"] == wanted.threshold).all() and bool(
            row["note"]
        ) != wanted.feasible
        sets = found.scores[new] <= wanted.threshold
        assert row["mean set size"] == pytest.approx(sets.sum(axis=1).mean())
        assert row["coverage"] == pytest.approx(
            sets[np.arange(len(sets)), found.y[new]].mean()
        )
        if metric.startswith("predictive") or np.isfinite(wanted.threshold).any():
            value = (
                audit(sets, found.y[new], names[new], metric)
                .disparities["disparity"]
                .iloc[0]
            )
            assert row["disparity"] == pytest.approx(value)
        if np.isinf(wanted.threshold[1:]).all() and not metric.startswith("predictive"):
            assert (row["lower"], row["upper"], row["verdict"]) == (
                *[float(metric == "disparate_impact")] * 2,
                "vacuous",
            )


def test_fixes_for_scores_above_one_use_a_grid_that_no_row_chose(
    digits, digits_csv, tmp_path
):
    found = audit_file(digits_csv, **OPTIONS)
    values = pd.DataFrame(-np.log1p(-found.scores.clip(0, 1 - 1e-9))).add_prefix("score_")
    frame = values.assign(digit=digits["digit"], group=np.arange(len(digits)) % 2)
    frame.to_csv(tmp_path / "scores.csv", index=False)
    found = audit_file(tmp_path / "scores.csv", label="digit", closeness=0.4)
    assert found.scores.max() > 2
    fixed = found.fixes("group", "equal_opportunity").loc[
        ("one for all labels", "fixed-sequence"), "threshold"
    ][0]
    assert np.isfinite(fixed) and fixed in files.WIDE_GRID


@pytest.mark.parametrize("n_labels, allowed", [(2, 0.01), (4, 0.02), (20, 0.05)])
def test_probabilities_may_be_off_by_rounding_and_no_more(bad_csv, n_labels, allowed):
    def file_with_a_sum_of(total):
        frame = pd.DataFrame(np.full((40, n_labels), 1 / n_labels)).add_prefix("p_")
        frame.loc[7, "p_0"] += total - 1
        return bad_csv(frame.assign(y=[0, 1] * 20, group=["a", "b"] * 20))

    for total in (1 + 0.9 * allowed, 1 - 0.9 * allowed):
        found = audit_file(file_with_a_sum_of(total))
        assert np.allclose((1 - found.scores).sum(axis=1), 1)
    for total in (1 + 1.1 * allowed, 1.2):
        with pytest.raises(ValueError, match=r"row 8: sum to 1\..*; wanted 1$"):
            audit_file(file_with_a_sum_of(total))


# Bad files: the message names the column and the row, counted from 1 after the header.

GOOD = pd.DataFrame(
    {
        "p_no": [0.9, 0.2, 0.4, 0.7] * 10,
        "p_yes": [0.1, 0.8, 0.6, 0.3] * 10,
        "y": ["no", "yes", "no", "yes"] * 10,
    }
).assign(group=["a", "b"] * 20)
PERCENT = GOOD.assign(p_no=100 * GOOD["p_no"], p_yes=100 * GOOD["p_yes"])
HALVES = GOOD.rename(columns={"p_no": "set_no", "p_yes": "set_yes"})
TEXT = GOOD.to_csv(index=False)


def put(row, column, value):
    frame = GOOD.astype({column: object})
    frame.loc[row, column] = value
    return frame


BAD = {
    "an empty file": (b"", r"^bad.csv is empty$"),
    "a header alone": (GOOD[:0], r"^bad.csv holds no rows$"),
    "no column of labels": (
        GOOD.drop(columns="y"),
        r"^label: found none; name one column of p_no, p_yes, group$",
    ),
    "no column of groups": (
        GOOD.drop(columns="group"),
        r"^groups: found none; name at least one column of p_no",
    ),
    "no probabilities": (
        GOOD[["y", "group"]],
        r"^columns: found neither; wanted one of probabilities \(p_",
    ),
    "one column of probabilities": (
        GOOD.drop(columns="p_no"),
        r"^columns: found probabilities \(p_yes\); .*per label",
    ),
    "percentages": (
        PERCENT,
        r"^column 'p_no', row 1: found 90.0; wanted .*not a percentage$",
    ),
    "one percentage": (
        put(6, "p_yes", 60),
        r"^column 'p_yes', row 7: found 60.0; wanted .*not a percentage$",
    ),
    "a negative probability": (
        put(2, "p_yes", -0.1),
        r"^column 'p_yes', row 3: found -0.1; wanted a prob",
    ),
    "probabilities that do not sum to 1": (
        put(3, "p_yes", 0.7),
        r"^columns p_no, p_yes, row 4: sum to 1.4; wanted 1$",
    ),
    "text among the probabilities": (
        put(8, "p_yes", "high"),
        r"^column 'p_yes', row 9: found 'high'; wanted a number$",
    ),
    "no probability": (
        put(8, "p_yes", None),
        r"^column 'p_yes', row 9: found nothing; wanted a number$",
    ),
    "an unseen label": (
        put(4, "y", "maybe"),
        r"^column 'y', row 5: found 'maybe'; wanted one of no, yes$",
    ),
    "no label": (
        put(4, "y", None),
        r"^column 'y', row 5: found nothing; wanted one of no, yes$",
    ),
    "numbers for labels": (
        GOOD.assign(y=1),
        r"^column 'y', row 1: found 1; wanted one of no, yes$",
    ),
    "one group": (
        GOOD.assign(group="a"),
        r"^column 'group': .*every point is in 'a'; wanted at least two",
    ),
    "a group per person": (
        GOOD.assign(group=range(40)),
        r"^column 'group': found 40 different values in 40 rows",
    ),
    "a part that is neither": (
        GOOD.assign(part="train"),
        r"^column 'part', row 1: found 'train'; wanted calibration",
    ),
    "one part only": (
        GOOD.assign(part="test"),
        r"^column 'part': every row is 'test'; wanted calibration and test",
    ),
    "sets of halves": (HALVES, r"^column 'set_no', row 1: found 0.9; wanted 0 or 1$"),
    "not UTF-8": (
        TEXT.replace("a\n", "ä\n", 2).encode("latin-1"),
        r"^column 'group', row 1: found the byte 0xe4, which is not UTF-8",
    ),
    "a header that is not UTF-8": (
        TEXT.replace("group", "größe").encode("latin-1"),
        r"^the header: found the byte 0xf6, which is not UTF-8",
    ),
    "a row that is too long": (
        TEXT.encode() + b"0.5,0.5,no,a,7\n",
        r"^bad.csv cannot be read: .*line 42, saw 5$",
    ),
    "rows that are too long": (
        re.sub("([ab])\n", "\\1,7\n", TEXT).encode(),
        r"^bad.csv cannot be read: ",
    ),
}


@pytest.fixture
def bad_csv(tmp_path):
    def write(content):
        path = tmp_path / "bad.csv"
        path.write_bytes(
            content
            if isinstance(content, bytes)
            else content.to_csv(index=False).encode()
        )
        return path

    return write


@pytest.mark.parametrize("content, message", BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_in_one_line_that_says_where(
    bad_csv, capsys, content, message
):
    audit_file(bad_csv(GOOD))
    path = bad_csv(content)
    with pytest.raises(ValueError, match=message):
        audit_file(path)
    assert command.main(["audit", str(path)]) == 2
    printed = capsys.readouterr()
    assert (
        printed.out == ""
        and printed.err.startswith("cfhelpers audit: ")
        and printed.err.count("\n") == 1
    )


def test_sizes_of_sets_are_refused_with_weights(bad_csv):
    path = bad_csv(GOOD.assign(w=1.5))
    with pytest.raises(ValueError, match="metrics: found set_size, which is not offered"):
        audit_file(path, weights="w", metrics="equal_opportunity,set_size")


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"label": "outcome"},
            r"label: there is no column 'outcome'; the file has p_no, p_yes, y, group",
        ),
        ({"groups": "group,race"}, r"groups: there is no column 'race'"),
        ({"columns": "p_no,p_maybe"}, r"columns: there is no column 'p_maybe'"),
        ({"kind": "logits"}, r"kind: found 'logits'; wanted one of 'probabilities'"),
        ({"metrics": "fairness"}, r"metric: found 'fairness'"),
        ({"closeness": "disparate_impact=2"}, r"closeness: found 2"),
        ({"closeness": "fairness=0.1"}, r"closeness: found 'fairness'"),
        ({"threshold": "high"}, r"threshold: found 'high'; wanted a number"),
        (
            {"threshold": "0.9,0.8,0.7"},
            r"threshold: found 3 numbers; wanted one, or one for each of the 2 labels",
        ),
        ({"score": "softmax"}, r"score: found 'softmax'"),
        ({"alpha": 10}, r"alpha: found 10"),
        ({"delta": 10}, r"delta: found 10"),
        ({"confidence": 95}, r"confidence: found 95"),
        ({"positive_labels": "perhaps"}, r"positive_labels: found 'perhaps'"),
    ],
)
def test_a_bad_option_is_refused(bad_csv, options, message):
    path = bad_csv(GOOD)
    with pytest.raises(ValueError, match=message):
        audit_file(path, **options)
    words = [
        word
        for key, value in options.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    assert command.main(["audit", str(path), *words]) == 2


def test_a_file_that_is_not_there_or_is_no_parquet_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        audit_file(tmp_path / "gone.csv")
    (tmp_path / "a.parquet").write_text("p_no,p_yes\n")
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read"):
        audit_file(tmp_path / "a.parquet")


def test_a_parquet_file_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    GOOD.to_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"a\.parquet needs pyarrow: pip .*\[data\]"):
        audit_file(path)


def test_sets_have_no_threshold_and_cannot_be_fixed(bad_csv):
    sets = GOOD[["y", "group"]].assign(set_no=1, set_yes=[0, 1] * 20)
    with pytest.raises(ValueError, match=r"threshold: found 0\.5 for sets"):
        audit_file(bad_csv(sets), threshold=0.5)
    with pytest.raises(
        ValueError, match="thresholds can be found for probabilities or scores only"
    ):
        audit_file(bad_csv(sets)).fixes("group", "equal_opportunity")


def test_groups_that_are_missing_or_unseen_are_rows_of_their_own(bad_csv):
    """A group whose rows are all for calibration is still there, with a count of 0."""
    frame = GOOD.assign(
        group=["a", "b", None, "c"] * 10,
        part=["test", "test", "test", "calibration"] * 10,
    )
    found = audit_file(bad_csv(frame), metrics="equal_opportunity").audits["group"]
    assert found.sizes["count"].to_dict() == {"a": 10, "b": 10, "c": 0, "missing": 10}
    assert found.table.set_index("group")["count"].to_dict() == {
        "a": 0,
        "b": 10,
        "c": 0,
        "missing": 0,
    }
    assert found.verdicts["equal_opportunity"] == "cannot tell"


# The command and the report


def test_the_command_prints_the_verdicts(digits_csv, capsys):
    assert (
        command.main(
            [
                "audit",
                str(digits_csv),
                "--label",
                "digit",
                "--groups",
                "ink,height",
                "--alpha",
                "0.2",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.strip() == str(
        audit_file(digits_csv, label="digit", groups="ink,height", alpha=0.2)
    )
    assert "by ink × height: audit of" in printed


def test_a_report_that_cannot_be_written_is_refused_before_any_work(
    bad_csv, capsys, monkeypatch, tmp_path
):
    path = bad_csv(GOOD)
    monkeypatch.setattr(files, "load_predictions", lambda *args, **options: 1 / 0)
    refused = {
        "report.pdf": "wanted a name that ends in .html",
        str(tmp_path / "bad.csv" / "report.html"): "cannot be written: Not a directory",
    }
    for name, message in refused.items():
        assert command.main(["audit", str(path), "--output", name]) == 2
        assert message in capsys.readouterr().err
    assert command.main(["audit", str(path), "--json", str(tmp_path)]) == 2
    assert "is a folder; wanted a file" in capsys.readouterr().err
    assert command.main(["audit", str(path), "--csv", str(path)]) == 2
    assert "is a file; wanted a folder" in capsys.readouterr().err
    assert command.main(["audit", str(path), "--card", str(path)]) == 2
    assert "is the file of predictions itself" in capsys.readouterr().err
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert command.main(["audit", str(path), "--output", "report.html"]) == 2
    needs = "output: a report needs jinja2: pip install 'cfhelpers[report]'"
    assert needs in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_the_template_is_part_of_the_package():
    settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    template = Path(auditing.__file__).with_name(report.TEMPLATE)
    assert template.is_file()
    assert "*.j2" in settings["tool"]["setuptools"]["package-data"]["*"]
    entry = settings["project"]["scripts"]["cfhelpers"]
    assert entry == f"{command.__name__}:main"
