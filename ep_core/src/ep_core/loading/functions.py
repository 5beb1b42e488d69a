"""Model-local functions: checked for recursion and blow-up, then inlined by `onnx.inliner`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from ep_core.errors import InvalidModelError, NotSupportedError
from ep_core.loading.limits import LoadLimits, plain_domain, quoted
from ep_core.loading.schemas import check_opset, schema_rules
from ep_core.loading.scopes import bodies
from ep_core.types import OpSet

__all__ = ["inline_functions"]

_Key = tuple[str, str, str]
_MAIN: _Key = ("", "", "")


@dataclass
class _Size:
    """What a function, or the main graph, holds: first by itself, then with all it calls."""

    nodes: int = 0
    depth: int = 0
    calls: Counter[_Key] = field(default_factory=Counter)
    call_depth: dict[_Key, int] = field(default_factory=dict)


def inline_functions(model: onnx.ModelProto, limits: LoadLimits) -> onnx.ModelProto:
    """Return the model without local functions; it may be `model` itself, changed.

    Raises:
        InvalidModelError: functions call themselves, on whatever way, or are malformed.
        ModelLimitError: the inlined model would be too large or too deep; found by counting,
            before anything is inlined.
        NotSupportedError: a function needs other operator versions than the model.
    """
    if not model.functions:
        return model
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (plain_domain(function.domain), function.name, function.overload)
        if key in functions:
            raise InvalidModelError(f"The function {_show(key)} is defined twice")
        functions[key] = function
    used = _measure(model.graph, functions, limits)
    if not used:
        del model.functions[:]
        return model
    for key in used:
        _check_names(functions[key], key)
        _adopt_opsets(model, functions[key], key, functions)
    kept = [functions[key] for key in used]
    del model.functions[:]
    model.functions.extend(kept)
    return _inline(model)


def _inline(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx.inliner

    try:
        inlined: onnx.ModelProto = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # the inliner throws whatever C++ throws
        raise InvalidModelError(f"The model's functions can't be inlined ({error})") from error
    del inlined.functions[:]
    return inlined


def _call(node: onnx.NodeProto) -> _Key:
    return (plain_domain(node.domain), node.op_type, node.overload)


def _show(key: _Key) -> str:
    return quoted(".".join(str(part) for part in key if part))


def _walk(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> Iterator[tuple[onnx.NodeProto, int]]:
    """All nodes, those of bodies included, with their nesting depth."""
    for node in nodes:
        yield node, depth
        for body in bodies(node):
            yield from _walk(body.node, depth + 1)


# ---------------------------------------------------------------- recursion and size


def _measure(
    graph: onnx.GraphProto, functions: Mapping[_Key, onnx.FunctionProto], limits: LoadLimits
) -> list[_Key]:
    """Return the functions in use, callees first, once their inlined size is known to be fine."""
    sizes = {_MAIN: _own_size(graph.node, functions)}
    order: dict[_Key, None] = {}
    path: dict[_Key, Iterator[_Key]] = {_MAIN: iter(sizes[_MAIN].calls)}
    while path:
        key, rest = next(reversed(path.items()))
        callee = next((name for name in rest if name not in order), None)
        if callee is None:
            del path[key]
            _add_callees(sizes, key)
            order[key] = None
        elif callee in path:
            cycle = [*list(path)[list(path).index(callee) :], callee]
            raise InvalidModelError(
                "The model has recursive functions: " + " -> ".join(map(_show, cycle)),
                expected="functions that don't call themselves, directly or through others",
            )
        else:
            limits.check("max_function_depth", len(path), "The chain of function calls")
            sizes[callee] = _own_size(functions[callee].node, functions)
            path[callee] = iter(sizes[callee].calls)
    total = sizes[_MAIN]
    limits.check("max_nodes", total.nodes, "The number of nodes with all functions inlined")
    limits.check("max_nesting_depth", total.depth, "The nesting of graphs, functions inlined,")
    return list(order)[:-1]


def _own_size(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[_Key, onnx.FunctionProto]
) -> _Size:
    size = _Size()
    for node, depth in _walk(nodes):
        size.nodes += 1
        size.depth = max(size.depth, depth)
        key = _call(node)
        function = functions.get(key)
        if function is None:
            continue
        size.calls[key] += 1
        size.call_depth[key] = max(size.call_depth.get(key, 0), depth)
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise InvalidModelError(
                f"A call of function {_show(key)} has too many inputs or outputs",
                expected=f"at most {len(function.input)} and {len(function.output)}",
                got=f"{len(node.input)} and {len(node.output)}",
            )
    return size


def _add_callees(sizes: Mapping[_Key, _Size], key: _Key) -> None:
    size = sizes[key]
    for callee, count in size.calls.items():
        inner = sizes[callee]
        size.nodes += count * inner.nodes
        size.depth = max(size.depth, size.call_depth[callee] + inner.depth)


# ---------------------------------------------------------------- before inlining


def _check_names(function: onnx.FunctionProto, key: _Key) -> None:
    """The inliner renames values, which would hide that one is defined twice."""
    seen: set[str] = set()
    outputs = (name for node in function.node for name in node.output if name)
    for name in (*function.input, *outputs):
        if name in seen:
            raise InvalidModelError(
                f"The value {quoted(name)} is defined twice in function {_show(key)}"
            )
        seen.add(name)


def _adopt_opsets(
    model: onnx.ModelProto,
    function: onnx.FunctionProto,
    key: _Key,
    functions: Mapping[_Key, onnx.FunctionProto],
) -> None:
    """Give the function the model's operator sets, if its operators mean the same there."""
    ours = {plain_domain(item.domain): item.version for item in model.opset_import}
    theirs = {plain_domain(item.domain): item.version for item in function.opset_import}
    for domain, version in theirs.items():
        check_opset(domain, version)
        if domain not in ours:
            model.opset_import.add(domain=domain, version=version)
            ours[domain] = version
    differing = {domain for domain, version in theirs.items() if ours[domain] != version}
    for node, _ in _walk(function.node if differing else ()):
        domain = plain_domain(node.domain)
        if domain not in differing or _call(node) in functions:
            continue
        wanted = schema_rules(node.op_type, domain, OpSet(theirs))
        found = schema_rules(node.op_type, domain, OpSet(ours))
        if wanted != found:
            raise NotSupportedError(
                f"Function {_show(key)} uses {quoted(node.op_type)} of opset {theirs[domain]}, "
                f"which differs from that of the model's opset {ours[domain]}",
                fix="Export the model and its functions with one opset.",
            )
    del function.opset_import[:]
    function.opset_import.extend(model.opset_import)
