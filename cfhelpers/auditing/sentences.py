"""What an audit found, in plain sentences: who is worst off, and what to do next.

Everything here is made from one verdict of the audit's JSON document, a plain dict; see
`cfhelpers.auditing.document`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cfhelpers.auditing.words import confidence_text, counted

Naming = Callable[[str], str]

# By metric: what it is called, and the question that it asks.
METRIC_WORDS = {
    "demographic_parity": (
        "Demographic parity",
        "Do the groups get a label equally often?",
    ),
    "equal_opportunity": (
        "Equal opportunity",
        "Of the people who have a label, is it found equally often in every group?",
    ),
    "predictive_equality": (
        "Predictive equality",
        "Of the people who do not have a label, do they get it equally often?",
    ),
    "equalized_odds": (
        "Equalized odds",
        "Both: is a true label found, and a wrong one given, equally often?",
    ),
    "disparate_impact": (
        "Disparate impact",
        "Does every group get a label at least so many times as often as any other?",
    ),
    "predictive_parity": (
        "Predictive parity",
        "Where a label is given, is it true equally often?",
    ),
    "predictive_parity_proxy": (
        "Predictive parity, less the prior",
        "Does a label that is given raise the chance of it equally in every group?",
    ),
    "overall_accuracy_equality": (
        "Overall accuracy equality",
        "Is the true label found equally often in every group?",
    ),
    "set_size": ("Size of the sets", "Are the sets equally large in every group?"),
    "singletons": (
        "Sets of one label",
        "Do the groups get a single label equally often?",
    ),
}
# By the cell's condition: who is counted, what happened to them, and whether the share
# that is told is that of the people without (a miss) or with it.
SET_FORMS = {
    "equal": (
        "people in {group} whose true label is {label}",
        "missed: their set leaves it out",
    ),
    "different": (
        "people in {group} whose true label is not {label}",
        "given it all the same: their set holds it",
    ),
    "any": ("people in {group}", "given {label}: their set holds it"),
    "held": (
        "people in {group} whose set holds {label}",
        "wrongly given it: their true label is another",
    ),
    "true": ("people in {group}", "missed: their set leaves out their true label"),
    "one": ("people in {group}", "given a single label"),
}
DECISION_FORMS = {
    **SET_FORMS,
    "equal": (
        "people in {group} whose true label is {label}",
        "missed: they are given another label",
    ),
    "different": (
        "people in {group} whose true label is not {label}",
        "given it all the same",
    ),
    "any": ("people in {group}", "given {label}"),
    "held": (
        "people in {group} who are given {label}",
        "given it wrongly: their true label is another",
    ),
    "true": ("people in {group}", "given a wrong label"),
}
FAR_FEWER = 10  # times as many in the other group
MISSES = ("equal", "held", "true")  # the share told is that of the people without
ACCEPT = "Or accept it with a reason, written down: who decided, why, and until when."
AGAIN = (
    "Nothing needs to change. Audit again when the model, the thresholds or the people "
    "change."
)


def title_of(metric: str) -> str:
    """What a metric is called.

    Examples
    --------
    >>> title_of("equal_opportunity")
    'Equal opportunity'
    """
    if metric in METRIC_WORDS:
        return METRIC_WORDS[metric][0]
    return metric.replace("_", " ").capitalize()


def question_of(metric: str) -> str:
    """The question that a metric asks; empty for one of the user's own."""
    return METRIC_WORDS.get(metric, ("", ""))[1]


def quoted(name: Any) -> str:
    """A name in quotes, as it stands in a sentence."""
    return f"“{name}”"


def percents(*shares: float) -> list[str]:
    """Shares as per cent, with as many digits as tell them apart, at most two.

    Examples
    --------
    >>> percents(0.3732, 0.26), percents(0.9512, 0.9534)
    (['37%', '26%'], ['95.1%', '95.3%'])
    """
    texts = [f"{share:.0%}" for share in shares]
    for digits in (1, 2):
        if len(set(texts)) == len(set(shares)):
            break
        texts = [f"{share:.{digits}%}" for share in shares]
    return texts


def share_texts(metric: str, *shares: float) -> list[str]:
    """Shares as per cent, or differences from a prior with their sign.

    Examples
    --------
    >>> share_texts("equal_opportunity", 0.37, 0.26)
    ['37%', '26%']
    >>> share_texts("predictive_parity_proxy", 0.442, -0.09)
    ['+0.442', '-0.090']
    """
    if metric == "predictive_parity_proxy":
        return [f"{share:+.3f}" for share in shares]
    return percents(*shares)


def number(value: float | None) -> str:
    """A difference or ratio with enough digits; a dash where there is none.

    Examples
    --------
    >>> number(0.1), number(0.00312), number(None)
    ('0.100', '0.0031', '–')
    """
    if value is None:
        return "–"
    if 0 < abs(value) < 0.01:
        return f"{value:.4f}"
    return f"{value:.3f}"


def allowed(entry: Mapping[str, Any]) -> str:
    """What is allowed: "at most 0.1", or "at least 0.8" for a ratio."""
    if entry["compare"] == "ratio":
        return f"at least {entry['closeness']:g}"
    return f"at most {entry['closeness']:g}"


def told(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict with the cell that is told: the one that shows it to be beyond.

    That is the cell that attains the disparity, unless too few people are in it to show
    anything.
    """
    return {**entry, **(entry["shown_by"] or {})}


def who_is_worst_off(
    entry: Mapping[str, Any],
    is_decision: bool = False,
    is_weighted: bool = False,
    shown: Naming = str,
) -> str:
    """One sentence or two on the cell that attains the disparity, counted in people.

    Parameters
    ----------
    entry : dict
        One verdict of the document.
    is_decision : bool
        Whether people are given one label each rather than a set.
    is_weighted : bool
        Whether shares are weighted, so that they are not those of the people counted.
    shown : function
        The name of a group as it is shown; by default as it is.

    Returns
    -------
    str
        Empty where no two groups have people to compare.

    Examples
    --------
    >>> low = {"group": "women", "n": 418, "covered": 262, "share": 262 / 418}
    >>> high = {"group": "men", "n": 900, "covered": 666, "share": 0.74}
    >>> entry = {"metric": "equal_opportunity", "condition": "equal", "label": ">50K"}
    >>> print(who_is_worst_off({**entry, "lowest": low, "highest": high}))
    Of 418 people in “women” whose true label is “>50K”, 156 (37%) are missed: their set
    leaves it out. In “men” 26% are; at that rate it would be 47 fewer people.
    """
    lowest = entry["lowest"]
    highest = entry["highest"]
    if lowest is None or highest is None:
        return ""
    if entry["metric"] == "predictive_parity_proxy":
        return _beside_the_prior(entry, is_decision, shown)
    if entry["metric"] == "set_size":
        return _compared_sizes(entry, shown)
    form = _form(entry)
    worst, other = (highest, lowest) if form == "different" else (lowest, highest)
    forms = DECISION_FORMS if is_decision else SET_FORMS
    who, what = forms[form]
    names = {"group": quoted(shown(worst["group"])), "label": quoted(entry["label"])}
    who = who.format(**names)
    what = what.format(**names)
    rates = [worst["share"], other["share"]]
    if form in MISSES:
        rates = [1 - rate for rate in rates]
    own_rate, other_rate = percents(*rates)
    if worst["n"] == 1:
        who = who.replace("people", "person", 1)
    beside = f"In {quoted(shown(other['group']))} {other_rate} are"
    if is_weighted:
        return f"Of {worst['n']:,} {who}, {own_rate} (weighted) are {what}. {beside}."
    with_it = worst["n"] - worst["covered"] if form in MISSES else worst["covered"]
    verb = "is" if with_it == 1 else "are"
    text = f"Of {worst['n']:,} {who}, {with_it:,} ({own_rate}) {verb} {what}. {beside}"
    change = round(worst["n"] * (rates[0] - rates[1]))
    if change == 0:
        return f"{text}."
    direction = "fewer" if change > 0 else "more"
    people = counted(abs(change), f"{direction} person", f"{direction} people")
    return f"{text}; at that rate it would be {people}."


def _form(entry: Mapping[str, Any]) -> str:
    """Which sentence fits: the metric's own, or that of the condition."""
    if entry["metric"] == "overall_accuracy_equality":
        return "true"
    if entry["metric"] == "singletons":
        return "one"
    if entry["condition"] in SET_FORMS:
        return str(entry["condition"])
    return "any"


def _compared_sizes(entry: Mapping[str, Any], shown: Naming) -> str:
    """The sentence on the size of sets, which counts labels and not people."""
    lowest = entry["lowest"]
    highest = entry["highest"]
    shares = percents(lowest["share"], highest["share"])
    return (
        f"The sets of {counted(highest['n'], 'person', 'people')} in "
        f"{quoted(shown(highest['group']))} hold {shares[1]} of all labels on average; "
        f"those of {quoted(shown(lowest['group']))} hold {shares[0]}."
    )


def _beside_the_prior(entry: Mapping[str, Any], is_decision: bool, shown: Naming) -> str:
    """The sentence on predictive values less the prior, which may be negative."""
    lowest = entry["lowest"]
    highest = entry["highest"]
    people = counted(lowest["n"], "person", "people")
    who = "who are given it" if is_decision else "whose set holds it"
    if lowest["n"] == 1:
        who = who.replace("are", "is")
    return (
        f"In {quoted(shown(lowest['group']))}, {quoted(entry['label'])} is true "
        f"{_points(lowest['share'])} often among the {people} {who} than in the whole "
        f"group; in {quoted(shown(highest['group']))} it is "
        f"{_points(highest['share'])} often."
    )


def _points(difference: float) -> str:
    """A difference of two shares in percentage points, with its direction."""
    direction = "more" if difference >= 0 else "less"
    return f"{100 * abs(difference):.1f} points {direction}"


def _size_texts(*sizes: float) -> list[str]:
    """Mean sizes of sets with two digits, or three where two would round to a whole."""
    texts = []
    for size in sizes:
        text = f"{size:.2f}"
        if text.endswith(".00") and float(text) != size:
            text = f"{size:.3f}"
        texts.append(text)
    return texts


def known(entry: Mapping[str, Any], confidence: float) -> str:
    """The disparity, its interval and what is allowed, as one sentence."""
    if entry["estimate"] is None:
        return "There are no people to compare."
    what = "ratio" if entry["compare"] == "ratio" else "difference"
    return (
        f"The {what} is {number(entry['estimate'])}, between {number(entry['lower'])} "
        f"and {number(entry['upper'])} with {confidence_text(confidence)} confidence; "
        f"allowed is {allowed(entry)}."
    )


def next_steps(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    """What to do about a verdict: the most useful first.

    Returns
    -------
    list of dict
        With `step` ("nothing", "collect", "pool", "thresholds", "accept", "look") and
        `text`.

    Examples
    --------
    >>> next_steps({"verdict": "within"})[0]["step"]
    'nothing'
    """
    if entry["verdict"] == "within":
        return [{"step": "nothing", "text": AGAIN}]
    steps = []
    if entry["vacuous"]:
        text = "Look at the sets first: where all are alike, no comparison means much."
        steps.append({"step": "look", "text": f"{entry['vacuous']} {text}"})
    elif entry["verdict"] == "cannot tell":
        steps.append(_collect(entry))
    if entry["small_groups"] and entry["verdict"] == "cannot tell":
        steps.append(_pool(entry))
    steps.append({"step": "thresholds", "text": thresholds_text(entry)})
    steps.append({"step": "accept", "text": ACCEPT})
    return steps


def _collect(entry: Mapping[str, Any]) -> dict[str, str]:
    """How many people would settle it, or that none would."""
    if entry["empty"]:
        cells = [f"{cell['group']}, {cell['label']}" for cell in entry["empty"][:3]]
        listed = "; ".join(cells)
        more = len(entry["empty"]) - 3
        if more > 0:
            listed = f"{listed}; and {counted(more, 'other cell')}"
        text = (
            f"Collect people of whom the file has none ({listed}), "
            "or say that the page is not about them."
        )
        return {"step": "collect", "text": text}
    if entry["people_needed"] is None:
        text = (
            f"Too close to call: observed {number(entry['estimate'])}, allowed "
            f"{allowed(entry)}. Not even ten times as many people like these would "
            f"probably settle it.{_in_the_way(entry)} Decide whether a difference of "
            "this size matters, whichever side of the limit it is on."
        )
        return {"step": "collect", "text": text}
    more = two_digits(max(entry["people_needed"] - entry["people"], 0))
    text = (
        f"Collect about {more:,} more people like these "
        f"({entry['people'] + more:,} in all). If shares stay as observed, "
        f"that gives a verdict with a probability of {entry['power']:.0%}."
    )
    return {"step": "collect", "text": text}


def _in_the_way(entry: Mapping[str, Any]) -> str:
    """That a group has few people, where more of everybody would tell little."""
    lowest = entry["lowest"]
    highest = entry["highest"]
    if lowest is None or highest is None:
        return ""
    fewer, other = sorted([lowest, highest], key=lambda share: share["n"])
    if fewer["n"] * FAR_FEWER <= other["n"]:
        people = counted(fewer["n"], "person", "people")
        verb = "is" if fewer["n"] == 1 else "are"
        return (
            f" In {quoted(fewer['group'])} there {verb} only {people}: more of them "
            "would tell more than more of everybody."
        )
    if entry["small_groups"]:
        return " The smallest groups stand in the way."
    return ""


def two_digits(value: float) -> int:
    """A projection's number, with no more digits than it deserves.

    Examples
    --------
    >>> two_digits(9234)
    9200
    """
    return int(float(f"{value:.2g}"))


def _pool(entry: Mapping[str, Any]) -> dict[str, str]:
    """Which groups are too small for any verdict "within"."""
    small = entry["small_groups"]
    has = "has" if small["groups"] == 1 else "have"
    text = (
        f"Or pool small groups: {counted(small['groups'], 'group')} {has} fewer than "
        f"{small['least']:,} people to compare, too few to show that groups are within "
        "what is allowed. If some belong together, --min-group N makes one group of "
        "those with fewer than N people."
    )
    return {"step": "pool", "text": text}


def thresholds_text(entry: Mapping[str, Any]) -> str:
    """Which thresholds would mend it, and their price."""
    fixes = entry["fixes"]
    if not fixes:
        return (
            "Change the thresholds: this file holds no probabilities or scores to find "
            "them from. With these in the file, this page says which thresholds would "
            "do, and at which price."
        )
    best = best_fix(entry)
    before = fixes[0]
    if best is None:
        return (
            "Change the thresholds: of those that were searched, none is shown to be "
            f"within what is allowed while the sets still say something.{_nearest(entry)}"
        )
    what = "ratio" if entry["compare"] == "ratio" else "difference"
    guarantee = "without a guarantee for the next sample"
    if best["rule"] == "fixed-sequence":
        guarantee = f"with a guarantee that fails with probability {best['delta']:g}"
    price = best["mean_set_size"] - before["mean_set_size"]
    grows = "grow" if price >= 0 else "shrink"
    size_before, size_after = _size_texts(before["mean_set_size"], best["mean_set_size"])
    return (
        f"Change the thresholds ({best['thresholds']}, {guarantee}): sets {grows} from "
        f"{size_before} to {size_after} labels on average, and on {best['rows']:,} rows "
        f"that chose nothing the {what} is "
        f"{number(best['estimate'])} ({number(best['lower'])} to "
        f"{number(best['upper'])}): within."
    )


def _nearest(entry: Mapping[str, Any]) -> str:
    """The thresholds that come closest, where none is shown to be within."""
    before = entry["fixes"][0]
    if before["estimate"] is None:
        return ""
    tried = []
    for fix in entry["fixes"][1:]:
        if not fix["vacuous"] and fix["estimate"] is not None:
            tried.append(fix)
    if not tried:
        return ""
    sign = -1 if entry["compare"] == "ratio" else 1
    nearest = min(tried, key=lambda fix: sign * fix["estimate"])
    if sign * nearest["estimate"] >= sign * before["estimate"]:
        return " None comes closer than the present ones."
    size_before, size_after = _size_texts(
        before["mean_set_size"], nearest["mean_set_size"]
    )
    return (
        f" The nearest: {number(nearest['estimate'])} ({number(nearest['lower'])} to "
        f"{number(nearest['upper'])}), with sets of {size_after} instead of "
        f"{size_before} labels."
    )


def best_fix(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The cheapest thresholds that are within; those with a guarantee come first."""
    good = []
    for fix in entry["fixes"][1:]:
        if fix["verdict"] == "within" and not fix["vacuous"]:
            good.append(fix)
    if not good:
        return None
    return min(
        good, key=lambda fix: (fix["rule"] != "fixed-sequence", fix["mean_set_size"])
    )
