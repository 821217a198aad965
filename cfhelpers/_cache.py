"""Arrays that take long to compute, kept under artifacts/ by everything they depend on."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cfhelpers import paths


def cached(
    name: str, key: dict[str, Any], compute: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays that `compute` gives, read from artifacts/ where they were stored for exactly this name and key."""
    text = json.dumps({"name": name} | key, sort_keys=True, default=fingerprint)
    path = (
        paths.ARTIFACTS
        / f"{name}-{hashlib.blake2b(text.encode(), digest_size=10).hexdigest()}.npz"
    )
    try:
        with np.load(path, allow_pickle=False) as stored:
            found, *names = stored["key"].tolist()
            if found == text:
                return {name: stored[name] for name in names}
    except Exception:  # absent or damaged, in whatever way: computed again
        pass
    arrays = compute()
    with paths.atomic_write(path) as partial:
        np.savez(partial, key=[text, *arrays], **arrays)
    return arrays


def fingerprint(*contents: Any) -> str:
    """A short text that changes whenever an entry, type or shape of the arrays and data frames does."""
    digest = hashlib.blake2b(digest_size=10)
    for content in contents:
        if isinstance(content, pd.DataFrame):
            digest.update(
                json.dumps([str(column) for column in content.columns]).encode()
            )
        array = np.asarray(content)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(
            repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        )
    return digest.hexdigest()
