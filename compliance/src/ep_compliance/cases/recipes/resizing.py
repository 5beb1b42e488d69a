"""Resize and Upsample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ep_compliance.cases.recipes import Ask, Sample, recipe

__all__: list[str] = []

_TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@recipe("Resize")
def resize(ask: Ask) -> Iterator[Sample]:
    """Modes, transformations, up and down; factors that float32 holds exactly."""
    x = ask.random(1, 2, 4, 4, low=0, high=9)
    up, down = [1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 0.5, 0.5]
    if ask.version < 11:
        for mode in ("nearest", "linear") if ask.is_float else ("nearest",):
            inputs = [x, np.array(up, np.float32)]
            yield Sample(f"{mode} up", inputs, {"mode": mode}, core=True)
        return
    for name, scales in (("up", up), ("down", down)):
        yield _resize(f"nearest {name}", x, scales, core=True)
        for mode in ("linear", "cubic"):
            if ask.is_float:
                yield _resize(f"{mode} {name}", x, scales, core=True, mode=mode)
    if ask.is_float:
        yield from _details(ask, x, up)
    if ask.version >= 13:
        sizes = ask.ints(1, 2, 8, 6)
        yield Sample("sizes", [x, None, None, sizes], {"mode": "nearest"}, core=True)
        factors = np.array(up, np.float32)
        yield Sample("no region", [x, None, factors], {"mode": "nearest"}, core=True)
    yield from _regions(ask, x)
    yield from _newer(ask, x)


def _resize(
    name: str, x: Any, scales: list[float], *, core: bool = False, **attributes: Any
) -> Sample:
    roi = np.zeros(0, np.float32)
    return Sample(name, [x, roi, np.array(scales, np.float32)], attributes, core=core)


def _regions(ask: Ask, x: Any) -> Iterator[Sample]:
    """A region of every type, with factors and with sizes; only cropping would look at it."""
    nearest = {"mode": "nearest"}
    factors, sizes = np.array([1.0, 1.0, 2.0, 2.0], np.float32), ask.ints(1, 2, 8, 6)
    for kind in ask.types(1):
        region = np.array([0, 0, 0.25, 0.125, 1, 1, 0.75, 0.875], kind.numpy)
        none = np.zeros(0, np.float32)
        yield Sample(f"region {kind.text}", [x, region, factors], nearest, core=True)
        inputs = [x, region, none, sizes]
        yield Sample(f"region {kind.text}, sizes", inputs, nearest, core=True)
        if ask.version >= 13:
            bare = [x, region, None, sizes]
            yield Sample(f"region {kind.text}, only sizes", bare, nearest, core=True)


def _details(ask: Ask, x: Any, up: list[float]) -> Iterator[Sample]:
    for transform in _TRANSFORMS:
        for mode in ("linear", "cubic"):
            yield _resize(
                f"{mode} {transform}", x, up, mode=mode, coordinate_transformation_mode=transform
            )
    for rounding in _ROUNDINGS:
        yield _resize(
            f"nearest {rounding}",
            x,
            up,
            mode="nearest",
            nearest_mode=rounding,
            coordinate_transformation_mode="asymmetric",
        )
    yield _resize("cubic a", x, up, mode="cubic", cubic_coeff_a=-0.5)
    yield _resize("cubic inside", x, up, mode="cubic", exclude_outside=1)
    yield _resize(
        "to one",
        x,
        [1.0, 1.0, 0.25, 0.25],
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )
    yield _resize("rank3", ask.random(1, 2, 5), [1.0, 1.0, 2.0], mode="linear")
    yield _resize("rank5", ask.random(1, 1, 2, 2, 3), [1.0, 1.0, 2.0, 1.0, 2.0], mode="linear")


def _newer(ask: Ask, x: Any) -> Iterator[Sample]:
    if ask.version < 18 or not ask.is_float:
        return
    scales = np.array([0.5, 0.5], np.float32)
    for mode in ("linear", "cubic"):
        attributes = {"mode": mode, "antialias": 1, "axes": [2, 3]}
        yield Sample(f"{mode} antialias", [x, None, scales], attributes)
    for policy in ("stretch", "not_larger", "not_smaller"):
        attributes = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "mode": "nearest"}
        yield Sample(policy, [x, None, None, ask.ints(8, 6)], attributes)


@recipe("Upsample")
def upsample(ask: Ask) -> Iterator[Sample]:
    """Factors as attributes before version 9, as an input since."""
    x = ask.random(1, 2, 3, 4, low=0, high=9)
    for mode in ("nearest", "linear"):
        if mode == "linear" and not ask.is_float:
            continue
        scales = [1.0, 1.0, 2.0, 3.0]
        if ask.version == 1:
            name = "bilinear" if mode == "linear" else mode
            attributes = {"height_scale": 2.0, "width_scale": 3.0, "mode": name}
            yield Sample(mode, [x], attributes, core=True)
        elif ask.version < 9:
            yield Sample(mode, [x], {"scales": scales, "mode": mode}, core=True)
        else:
            yield Sample(mode, [x, np.array(scales, np.float32)], {"mode": mode}, core=True)
