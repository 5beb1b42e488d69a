"""The graph optimiser: rewrites a graph into an equal one that runs faster, by levels.

Here stand the list of passes and the driver; each pass has a file of its own. The optimiser has no
arithmetic of its own at the basic level: constants are folded by the caller's `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from ep_core.errors import OptionError, did_you_mean
from ep_core.graph import Graph
from ep_core.levels import GraphOptimizationLevel
from ep_core.passes import (
    cast_chain,
    common_subexpression,
    constant_folding,
    constant_if,
    constant_sharing,
    conv_batch_norm,
    conv_scale,
    dead_code,
    gelu,
    identity_elimination,
    layer_norm,
    matmul_add,
    noop_arithmetic,
    noop_shape,
    pad_fusion,
    reshape_chain,
    rms_norm,
    swish,
    transpose_chain,
    transpose_pushing,
    transpose_sinking,
)
from ep_core.passes._driver import Evaluate, Pass, PassContext, PassError, run_pass
from ep_core.passes._scope import Names

__all__ = [
    "PASSES",
    "Evaluate",
    "GraphOptimizationLevel",
    "Pass",
    "PassError",
    "Watch",
    "optimize",
]

PASSES: tuple[Pass, ...] = (
    constant_if.PASS,
    constant_folding.PASS,
    identity_elimination.PASS,
    noop_arithmetic.PASS,
    noop_shape.PASS,
    cast_chain.PASS,
    transpose_chain.PASS,
    constant_sharing.PASS,
    common_subexpression.PASS,
    dead_code.PASS,
    reshape_chain.PASS,
    pad_fusion.PASS,
    conv_batch_norm.PASS,
    conv_scale.PASS,
    matmul_add.PASS,
    gelu.PASS,
    layer_norm.PASS,
    rms_norm.PASS,
    swish.PASS,
    transpose_sinking.PASS,
    transpose_pushing.PASS,
)
"""Every pass, in the order in which a round runs them."""

Watch = Callable[[str, Graph, Callable[[], Graph]], Graph]
"""Called in place of a pass, with its name, the graph before, and the pass; returns its result."""

_MOST_ROUNDS = 16
"""Rounds per level. Each pass does all it can in one go, so real models need three or four; the
bound keeps a chain of passes that feed each other one node at a time from taking forever."""


def optimize(
    graph: Graph,
    level: GraphOptimizationLevel,
    *,
    evaluate: Evaluate,
    disabled: Collection[str] = (),
    accept: Callable[[Graph, Graph], bool] | None = None,
    watch: Watch | None = None,
) -> Graph:
    """Return an equal graph, rewritten by the passes of `level` until nothing more changes.

    Names and order of inputs and outputs stay. Results at the basic level are equal bit by bit.

    Args:
        graph: a main graph as the loader makes it; bodies are rewritten with it.
        level: `ORT_DISABLE_ALL` returns `graph` itself.
        evaluate: computes one node on constants, or returns None.
        disabled: names of passes to leave out, also those of ONNX Runtime's that ours stand for.
        accept: asked with the graph before and after each pass beyond the basic level; a no undoes
            the pass. For fusions into operators that the chosen providers lack.
        watch: sees every pass that is run, for timing it.

    Raises:
        OptionError: a name in `disabled` is unknown.
        PassError: a pass broke its postconditions.
    """
    skipped = _resolve(disabled)
    if level == GraphOptimizationLevel.ORT_DISABLE_ALL:
        return graph
    context = PassContext(evaluate, Names(graph))
    settled: dict[str, Graph] = {}
    for rung in sorted({step.level for step in PASSES if step.level <= level}):
        steps = [step for step in PASSES if step.level <= rung and step.name not in skipped]
        graph = _settle(steps, graph, context, settled, accept, watch)
    return graph


def _settle(
    steps: Iterable[Pass],
    graph: Graph,
    context: PassContext,
    settled: dict[str, Graph],
    accept: Callable[[Graph, Graph], bool] | None,
    watch: Watch | None,
) -> Graph:
    """Run the passes in rounds; `settled` has the graph on which each has nothing more to do."""
    for _ in range(_MOST_ROUNDS):
        before = graph
        for step in steps:
            if settled.get(step.name) is not graph:
                work = partial(_attempt, step, graph, context, accept)
                result = work() if watch is None else watch(step.name, graph, work)
                if result is graph:
                    settled[step.name] = graph
                graph = result
        if graph is before:
            break
    return graph


def _attempt(
    step: Pass,
    graph: Graph,
    context: PassContext,
    accept: Callable[[Graph, Graph], bool] | None,
) -> Graph:
    """The graph after one pass, or the same graph where the pass isn't accepted."""
    result = run_pass(step, graph, context)
    if accept is not None and step.level > GraphOptimizationLevel.ORT_ENABLE_BASIC:
        return result if result is graph or accept(graph, result) else graph
    return result


def _resolve(disabled: Collection[str]) -> set[str]:
    if isinstance(disabled, str) or not isinstance(disabled, Collection):
        raise OptionError("disabled_optimizers", expected="a list of names", got=repr(disabled))
    owners: dict[str, set[str]] = {}
    for step in PASSES:
        for name in (step.name, *step.aliases):
            owners.setdefault(name, set()).add(step.name)
    unknown = [name for name in disabled if name not in owners]
    if unknown:
        raise OptionError(
            f"unknown optimizer in disabled_optimizers: {unknown[0]!r}",
            fix=did_you_mean(str(unknown[0]), owners),
        )
    return {owner for name in disabled for owner in owners[name]}
