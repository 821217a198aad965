"""What a row holds, as 64-bit integers: the same for the same values, however stored.

Numbers count as float64 (7 and 7.0 are one number, -0.0 is 0.0, there is one NaN, and
whatever is missing is NaN), times as microseconds, text as UTF-8.
"""

import numbers
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from pandas.api import types
from scipy import sparse

from cfhelpers._checks import as_array, as_pandas

_TEXT_KEY = "cfhelpers: texts"  # 16 characters, as pandas' SipHash wants
_WORD = 2**64
_EXACT = 2**53  # up to here every integer is a float64


def as_table(values: Any) -> Any:
    """Rows in a form that `row_bits` takes: a frame, a CSR matrix, or numbers (n, d).

    Whatever has one entry per person, such as ids, is a series.
    """
    values = as_pandas(values)
    if sparse.issparse(values):
        return sparse.csr_array(values)  # type: ignore[call-overload]  # any sparse matrix
    if isinstance(values, pd.DataFrame):
        return values.reset_index(drop=True)
    if isinstance(values, pd.Series | pd.Index | pd.Categorical):
        return pd.Series(values).reset_index(drop=True)
    if isinstance(values, list | tuple):
        # No NumPy array: it would make the ids 7 and "7" one text.
        if any(isinstance(row, list | tuple | np.ndarray) for row in values):
            return pd.DataFrame(list(values), dtype=object).infer_objects()
        return pd.Series(list(values), dtype=object).infer_objects()
    array = as_array(values)
    if array.ndim == 0:
        raise ValueError(
            f"rows: found {values!r}; wanted a table of rows, or one id for each person"
        )
    if array.ndim > 2:
        array = array.reshape(len(array), -1)
    if array.ndim == 2 and array.dtype.kind in "fiub":
        return array
    if array.dtype.kind in "US":
        array = array.astype(object)
    if array.ndim == 1:
        return pd.Series(array).infer_objects()
    return pd.DataFrame(array).infer_objects()


def row_bits(table: Any) -> np.ndarray:
    """The content of some rows of `as_table`, unsigned 64-bit integers (n, d)."""
    if isinstance(table, sparse.csr_array):
        return _float_bits(table.toarray())
    if isinstance(table, np.ndarray):
        return _float_bits(table)
    if isinstance(table, pd.Series):
        return _id_bits(table)
    bits = np.empty(table.shape, "<u8")
    for place in range(table.shape[1]):
        bits[:, place] = _column_bits(table.iloc[:, place])
    return bits


def _id_bits(ids: pd.Series) -> np.ndarray:
    """The content of some ids, (n, 2): as of a column, and what float64 loses of them.

    Long integers that are one float64 are different people.
    """
    return np.stack([_column_bits(ids), _lost_bits(ids)], axis=1)


def _lost_bits(ids: pd.Series) -> np.ndarray:
    """What float64 loses of every id that is a whole number, (n,)."""
    dtype = ids.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        of_categories = _lost_bits(pd.Series(dtype.categories))
        return np.append(of_categories, np.uint64(0))[ids.cat.codes.to_numpy()]
    lost = np.zeros(len(ids), "<u8")
    if types.is_integer_dtype(dtype):
        size = ids.to_numpy(np.float64, na_value=0.0)
        may_be_long = bool(np.abs(size).max(initial=0) >= _EXACT)
    else:
        is_decimal = types.is_numeric_dtype(dtype) and not types.is_float_dtype(dtype)
        may_be_long = types.is_object_dtype(dtype) or is_decimal
    if may_be_long:
        for place, value in enumerate(ids.tolist()):
            if _is_whole(value):
                lost[place] = _lost_digits(int(value))
    return lost


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number of any length."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    return isinstance(value, int | np.integer)


def _lost_digits(value: int) -> int:
    """What remains of an integer beside its float64."""
    try:
        return (value - int(float(value))) % _WORD
    except OverflowError:
        return value % _WORD


def _column_bits(column: pd.Series) -> np.ndarray:
    """The content of one column, (n,)."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = pd.Series(dtype.categories)
        return _looked_up(_column_bits(categories), column.cat.codes.to_numpy())
    if types.is_datetime64_any_dtype(dtype):
        return _time_bits(pd.DatetimeIndex(column).as_unit("us"))
    if types.is_timedelta64_dtype(dtype):
        return _time_bits(pd.TimedeltaIndex(column).as_unit("us"))
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return _float_bits(column.to_numpy(np.float64, na_value=np.nan))
    if types.is_object_dtype(dtype):
        return _object_bits(column.to_numpy())
    if types.is_string_dtype(dtype):
        codes, texts = pd.factorize(column)
        return _looked_up(_text_bits(np.asarray(texts, object)), codes)
    return _object_bits(column.to_numpy(object))


def _looked_up(bits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The content behind codes, of which -1 is a missing value."""
    missing = _float_bits(np.array([np.nan]))
    return np.append(bits, missing)[codes]


def _float_bits(values: np.ndarray) -> np.ndarray:
    """The bits of numbers as float64, with one zero and one NaN."""
    floats = values.astype("<f8") + 0.0  # a copy, in which -0.0 is 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view("<u8")


def _time_bits(times: pd.DatetimeIndex | pd.TimedeltaIndex) -> np.ndarray:
    """The bits of microseconds as float64."""
    microseconds = times.asi8.astype(np.float64)
    microseconds[times.isna()] = np.nan
    return _float_bits(microseconds)


def _text_bits(texts: np.ndarray) -> np.ndarray:
    """SipHash of the texts' UTF-8."""
    if len(texts) == 0:
        return np.empty(0, "<u8")
    try:
        return pd.util.hash_array(texts, hash_key=_TEXT_KEY, categorize=False)
    except UnicodeEncodeError as error:
        raise ValueError(f"rows: found text that is not UTF-8: {error}") from None


def _object_bits(values: np.ndarray) -> np.ndarray:
    """The content of values of mixed types, one by one."""
    floats = np.zeros(len(values))
    is_text = np.zeros(len(values), bool)
    texts = []
    for place, value in enumerate(values.tolist()):
        if isinstance(value, str | bytes):
            is_text[place] = True
            texts.append(value)
        elif isinstance(value, UUID):
            is_text[place] = True
            texts.append(str(value))
        else:
            floats[place] = _as_float(value)
    bits = _float_bits(floats)
    bits[is_text] = _text_bits(np.array(texts, object))
    return bits


def _as_float(value: Any) -> float:
    """A number, a time or a missing value as a float."""
    if value is None or value is pd.NA or value is pd.NaT:
        return np.nan
    if isinstance(value, date | np.datetime64):
        moment = pd.Timestamp(value).as_unit("us").to_datetime64()
        return float(moment.astype(np.int64))
    if isinstance(value, timedelta | np.timedelta64):
        span = pd.Timedelta(value).as_unit("us").to_timedelta64()
        return float(span.astype(np.int64))
    if isinstance(value, numbers.Real | Decimal | np.bool_):
        try:
            return float(value)
        except OverflowError:
            return np.inf
    raise ValueError(
        f"rows: found {value!r} of type {type(value).__name__}; "
        "wanted numbers, text, dates or missing values"
    )
