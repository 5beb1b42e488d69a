"""Labels and categories of ai.onnx.ml: LabelEncoder, CategoryMapper, OneHotEncoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ep_core.errors import InvalidModelError, RunError
from ep_cpu.kernels.ml_support import DOMAIN, string_array
from ep_cpu.kernels.support import Array, text
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode

_Find = Callable[[Array], Array]
"""`find(x)` gives the position among the keys of each element of x, flat; -1 for none."""


def _strings(values: Any) -> Array:
    names = [text(value) for value in values]
    return string_array(names, (len(names),))


def _finder(keys: Array) -> _Find:
    """Look up elements; of equal keys the last counts, and NaN equals NaN."""
    if keys.dtype.kind == "O":
        places = {key: place for place, key in enumerate(keys)}
        return lambda x: np.array([places.get(item, -1) for item in x.reshape(-1)], np.intp)
    # Sorted from the back, so that the first of equal keys is the last given.
    order = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")
    ordered = keys[order]

    def find(x: Array) -> Array:
        flat = x.reshape(-1)
        if not len(keys):
            return np.full(len(flat), -1, np.intp)
        # NaN sorts last and is found there like any other key.
        at = np.minimum(np.searchsorted(ordered, flat), len(keys) - 1)
        found = ordered[at]
        same = found == flat
        if keys.dtype.kind == "f":
            same |= np.isnan(found) & np.isnan(flat)
        return np.where(same, order[at], -1)

    return find


def _map(find: _Find, values: Array, default: Any) -> Kernel:
    """A kernel that replaces keys by values, and what is no key by `default`."""
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1] = values
    # Position -1 is the last.
    table[-1] = default

    def run(x: Array) -> Array:
        return np.asarray(table[find(x)]).reshape(x.shape)

    return run


def _check_lengths(node: KernelNode, keys: Array, values: Array) -> None:
    if len(keys) != len(values):
        raise InvalidModelError(
            f"{node.node.op_type} needs as many values as keys",
            expected=len(keys),
            got=len(values),
        )


def _both_ways(node: KernelNode, strings: Array, numbers: Array) -> Kernel:
    """Strings to integers or back, as the input is."""
    to_number = _map(_finder(strings), numbers, int(node.attr("default_int64", -1)))
    to_string = _map(_finder(numbers), strings, text(node.attr("default_string", "_Unused")))
    return lambda x: to_number(x) if x.dtype.kind == "O" else to_string(x)


@TABLE.kernel("LabelEncoder", domain=DOMAIN, until=1)
def _label_encoder_classes(node: KernelNode) -> Kernel:
    strings = _strings(node.attr("classes_strings", ()))
    return _both_ways(node, strings, np.arange(len(strings), dtype=np.int64))


@TABLE.kernel("CategoryMapper", domain=DOMAIN)
def _category_mapper(node: KernelNode) -> Kernel:
    strings = _strings(node.attr("cats_strings", ()))
    numbers = np.array(node.attr("cats_int64s", ()), np.int64)
    _check_lengths(node, strings, numbers)
    return _both_ways(node, strings, numbers)


@TABLE.kernel("LabelEncoder", domain=DOMAIN, since=2)
def _label_encoder(node: KernelNode) -> Kernel:
    keys, _ = _typed_list(node, "keys")
    values, kind = _typed_list(node, "values")
    _check_lengths(node, keys, values)
    return _map(_finder(keys), values, _default(node, values.dtype, kind))


def _typed_list(node: KernelNode, prefix: str) -> tuple[Array, str]:
    """The one attribute `prefix_*` that is set, and its kind.

    Raises:
        InvalidModelError: none or several are.
    """
    known = {"int64s": np.int64, "floats": np.float32, "strings": object, "tensor": None}
    given = [kind for kind in known if node.attr(f"{prefix}_{kind}") is not None]
    filled = [kind for kind in given if len(np.atleast_1d(node.attr(f"{prefix}_{kind}")))]
    if len(filled) > 1 or not given:
        raise InvalidModelError(f"LabelEncoder needs one attribute {prefix}_*", got=given or "none")
    kind = (filled or given)[0]
    raw = node.attr(f"{prefix}_{kind}")
    if kind == "strings":
        return _strings(raw), kind
    if kind == "tensor":
        flat = np.asarray(raw).reshape(-1)
        return (_strings(flat) if flat.dtype.kind == "O" else flat), kind
    return np.array(raw, known[kind]), kind


def _default(node: KernelNode, dtype: np.dtype[Any], kind: str) -> Any:
    given = node.attr("default_tensor")
    if kind == "tensor" and given is not None and np.asarray(given).size == 1:
        value = np.asarray(given).reshape(-1)[0]
        return text(value) if dtype.kind == "O" else value
    if dtype.kind == "O":
        return text(node.attr("default_string", "_Unused"))
    if dtype.kind == "f":
        return float(node.attr("default_float", -0.0))
    return int(node.attr("default_int64", -1))


@TABLE.kernel("OneHotEncoder", domain=DOMAIN)
def _one_hot_encoder(node: KernelNode) -> Kernel:
    strings = _strings(node.attr("cats_strings", ()))
    numbers = np.array(node.attr("cats_int64s", ()), np.int64)
    if bool(len(strings)) == bool(len(numbers)):
        raise InvalidModelError("OneHotEncoder needs either cats_strings or cats_int64s")
    lenient = bool(node.attr("zeros", 1))
    categories = strings if len(strings) else numbers
    find = _finder(categories)

    def run(x: Array) -> Array:
        if (x.dtype.kind == "O") != (categories.dtype.kind == "O"):
            raise RunError(
                "the input's type isn't that of the categories",
                expected="strings" if len(strings) else "numbers",
                got=str(x.dtype),
            )
        places = find(x if x.dtype.kind == "O" else x.astype(np.int64))
        known = places >= 0
        if not lenient and not known.all():
            raise RunError(
                "OneHotEncoder met an unknown category, which zeros=0 forbids",
                got=repr(x.reshape(-1)[int(np.argmin(known))]),
            )
        result = np.zeros((x.size, len(categories)), np.float32)
        result[np.flatnonzero(known), places[known]] = 1
        return result.reshape(*x.shape, len(categories))

    return run
