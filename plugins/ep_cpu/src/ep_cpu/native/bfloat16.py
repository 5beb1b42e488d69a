"""Products in bfloat16, where the caller asked for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ep_cpu.native.steps import NativeStep

__all__ = ["in_bfloat16"]


def in_bfloat16(steps: Sequence[NativeStep], constants: Collection[str]) -> tuple[NativeStep, ...]:
    """The same steps, with products of constant weights in bfloat16.

    Sums stay in float32, and so do all other steps.

    Args:
        constants: names of values that never change.
    """
    return tuple(
        step.with_attributes(pairs=1) if _takes_pairs(step, constants) else step for step in steps
    )


def _takes_pairs(step: NativeStep, constants: Collection[str]) -> bool:
    if step.kind == "conv":
        return bool(step.attributes["group"] == 1)
    if step.kind != "matmul" or step.inputs[1] not in constants:
        return False
    return not {"a_order", "order"} & step.attributes.keys()
