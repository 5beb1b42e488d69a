"""Strings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []


def _words(*words: str) -> Any:
    return np.array(words, object)


@recipe("StringConcat")
def string_concat(ask: Ask) -> Iterator[Sample]:
    """Broadcasting."""
    yield Sample("plain", [_words("a", "", "ä"), _words("b", "c", "日")], core=True)
    yield Sample("broadcast", [_words("a", "b").reshape(2, 1), _words("c", "d", "e")])
    yield Sample("empty", [np.empty((0, 2), object), _words("c", "d")])


@recipe("StringSplit")
def string_split(ask: Ask) -> Iterator[Sample]:
    """By spaces, by a delimiter, at most so often."""
    x = _words("a b  c", "", "one,two", " x ")
    yield Sample("spaces", [x], outputs=2, core=True)
    # Whether an empty text has no parts by a delimiter, or an empty one, the operator doesn't say.
    full = _words("a,b,,c", "one", "one,two", ",x")
    yield Sample("delimiter", [full], {"delimiter": ","}, outputs=2)
    yield Sample("limited", [x], {"maxsplit": 1}, outputs=2)


@recipe("RegexFullMatch")
def regex(ask: Ask) -> Iterator[Sample]:
    """Whole strings only."""
    x = _words("abc", "ab", "", "12").reshape(2, 2)
    yield Sample("letters", [x], {"pattern": "[a-z]+"}, core=True)
    yield Sample("alternatives", [x], {"pattern": "ab|12"})


@recipe("StringNormalizer")
def normalizer(ask: Ask) -> Iterator[Sample]:
    """Cases and stop words."""
    x = _words("Monday", "tuesday", "the", "END")
    yield Sample("lower", [x], {"case_change_action": "LOWER"}, core=True)
    yield Sample("upper", [x], {"case_change_action": "UPPER"})
    stop = {"stopwords": ["the"], "is_case_sensitive": 1}
    yield Sample("stop words", [x], stop)


@recipe("TfIdfVectorizer")
def tf_idf(ask: Ask) -> Iterator[Sample]:
    """Counts, with skips, of one and two words."""
    base = {
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
    }
    if ask.dtype.is_integer:
        pool: dict[str, Any] = {"pool_int64s": [2, 3, 5, 2, 3, 5, 7]}
        x = np.array([[2, 3, 5, 7, 2, 3], [1, 1, 2, 5, 7, 7]], ask.dtype.numpy)
    else:
        pool = {"pool_strings": ["a", "b", "c", "a", "b", "c", "d"]}
        x = _words(*"abcdab").reshape(1, 6)
    weights = {"weights": [0.5, 1.0, 2.0, 3.0, 4.0]}
    yield Sample("counts", [x], {**base, **pool, "mode": "TF"}, core=True)
    yield Sample("weighted", [x], {**base, **pool, **weights, "mode": "TFIDF"})
    yield Sample("present", [x], {**base, **pool, **weights, "mode": "IDF"})
