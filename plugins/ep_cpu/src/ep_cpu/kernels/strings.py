"""Operators on strings. A host string tensor is an object array of `str`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def string_array(values: Any, shape: tuple[int, ...]) -> Array:
    """An object array of the given shape from a flat list of strings."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


@TABLE.kernel("StringConcat", since=20)
def _string_concat(node: KernelNode) -> Kernel:
    def run(x: Array, y: Array) -> Array:
        left, right = np.broadcast_arrays(x, y)
        joined = [a + b for a, b in zip(left.reshape(-1), right.reshape(-1), strict=True)]
        return string_array(joined, left.shape)

    return run


@TABLE.kernel("RegexFullMatch", since=20)
def _regex_full_match(node: KernelNode) -> Kernel:
    pattern = re.compile(text(node.attr("pattern")))

    def run(x: Array) -> Array:
        found = [pattern.fullmatch(value) is not None for value in x.reshape(-1)]
        return np.array(found, np.bool_).reshape(x.shape)

    return run


@TABLE.kernel("StringSplit", since=20)
def _string_split(node: KernelNode) -> Kernel:
    delimiter = text(node.attr("delimiter", "")) or None
    limit = node.attr("maxsplit")
    most = -1 if limit is None else int(limit)

    def run(x: Array) -> tuple[Array, Array]:
        parts = [value.split(delimiter, most) if value else [] for value in x.reshape(-1)]
        longest = max((len(part) for part in parts), default=0)
        padded = [item for part in parts for item in part + [""] * (longest - len(part))]
        counts = np.array([len(part) for part in parts], np.int64).reshape(x.shape)
        return string_array(padded, (*x.shape, longest)), counts

    return run


_CASE_CHANGES: dict[str, Callable[[str], str]] = {
    "NONE": lambda value: value,
    "LOWER": str.lower,
    "UPPER": str.upper,
}


@TABLE.kernel("StringNormalizer", since=10)
def _string_normalizer(node: KernelNode) -> Kernel:
    """`locale` is ignored: Python's case mapping is Unicode's, the same for all locales."""
    change = _CASE_CHANGES[text(node.attr("case_change_action", "NONE")).upper()]
    sensitive = bool(node.attr("is_case_sensitive", 0))
    stopwords = {text(word) for word in node.attr("stopwords", ())}
    if not sensitive:
        stopwords = {word.lower() for word in stopwords}

    def run(x: Array) -> Array:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise RunError("StringNormalizer needs [C] or [1, C]", got=f"shape {x.shape}")
        kept = [
            value
            for value in x.reshape(-1)
            if (value if sensitive else value.lower()) not in stopwords
        ]
        changed = [change(value) for value in kept] or [""]
        return string_array(changed, (len(changed),) if x.ndim == 1 else (1, len(changed)))

    return run


# ---------------------------------------------------------------- n-grams


@TABLE.kernel("TfIdfVectorizer", since=9)
def _tf_idf_vectorizer(node: KernelNode) -> Kernel:
    shortest = int(node.attr("min_gram_length"))
    longest = int(node.attr("max_gram_length"))
    most_skips = int(node.attr("max_skip_count"))
    mode = text(node.attr("mode"))
    if mode not in ("TF", "IDF", "TFIDF"):
        raise RunError("unknown mode of TfIdfVectorizer", expected="TF, IDF or TFIDF", got=mode)
    columns = [int(value) for value in node.attr("ngram_indexes")]
    weights = node.attr("weights")
    grams = _gram_columns(node, columns)
    width = max(columns, default=-1) + 1
    factor = np.ones(width, np.float32)
    if weights is not None:
        for column, weight in zip(columns, weights, strict=True):
            factor[column] = weight

    def count(row: list[Any]) -> Array:
        totals = np.zeros(width, np.float32)
        for length in range(shortest, longest + 1):
            # Skips don't exist within a single item.
            for skip in range(1 if length == 1 else most_skips + 1):
                span = (length - 1) * (skip + 1) + 1
                for start in range(len(row) - span + 1):
                    column = grams.get(tuple(row[start : start + span : skip + 1]))
                    if column is not None:
                        totals[column] += 1
        if mode == "TF":
            return totals
        return (totals > 0) * factor if mode == "IDF" else totals * factor

    def run(x: Array) -> Array:
        if x.ndim not in (1, 2):
            raise RunError("TfIdfVectorizer needs [C] or [N, C]", got=f"shape {x.shape}")
        rows = [count(list(row)) for row in x.reshape(-1, x.shape[-1]).tolist()]
        return np.array(rows, np.float32).reshape(*x.shape[:-1], width)

    return run


def _gram_columns(node: KernelNode, columns: list[int]) -> dict[tuple[Any, ...], int]:
    """The output column of every n-gram in the pool."""
    pool: list[Any] = [text(value) for value in node.attr("pool_strings", ())]
    pool = pool or [int(value) for value in node.attr("pool_int64s", ())]
    starts = [int(value) for value in node.attr("ngram_counts")]
    found: dict[tuple[Any, ...], int] = {}
    number = 0
    for index, start in enumerate(starts):
        length = index + 1
        end = starts[index + 1] if index + 1 < len(starts) else len(pool)
        for first in range(start, end - length + 1, length):
            found[tuple(pool[first : first + length])] = columns[number]
            number += 1
    return found
