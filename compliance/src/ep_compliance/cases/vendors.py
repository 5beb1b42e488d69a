"""Cases that a provider's own distribution brings, for operators that only its vendor defines.

A distribution names a callable in the entry-point group `ep_compliance.cases`; it returns an
iterable of `Case`. They are run when that distribution's provider is certified and no other. They
grant rows for the vendor's own operators only: nobody grades himself on what others define.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, EntryPoint

import onnx

from ep_compliance.cases.case import Case, Subject
from ep_compliance.cases.recorded.operators import RECORDED_DOMAIN
from ep_compliance.cases.signatures import ONNX_DOMAINS, Formal, signature_of
from ep_compliance.cases.subjects import element_type
from ep_compliance.errors import CasesError
from ep_core.discovery.plugins import guarded
from ep_core.errors import ProviderError
from ep_core.types import DataType

__all__ = ["VENDOR_GROUP", "vendor_cases"]

VENDOR_GROUP = "ep_compliance.cases"

_STANDARD = ONNX_DOMAINS | {"ai.onnx", RECORDED_DOMAIN}


def vendor_cases(distribution: Distribution | None) -> list[Case]:
    """Return the cases of a provider's distribution, ids `vendor/<distribution>/<its own id>`.

    To be called after the provider is loaded, so that its operator schemas are registered.

    Raises:
        CasesError: an entry point can't be loaded or called, or gives something else than cases.
    """
    if distribution is None:
        return []
    name = str(distribution.metadata["Name"])
    found: dict[str, Case] = {}
    for point in sorted(distribution.entry_points.select(group=VENDOR_GROUP)):
        where = f"entry point {point.name!r} of {name} in {VENDOR_GROUP}"
        for case in _called(point, where):
            own = _own(case, name, where)
            if own.id in found:
                raise CasesError(f"{where}: two cases have the id {own.id!r}")
            found[own.id] = own
    return list(found.values())


def _called(point: EntryPoint, where: str) -> list[object]:
    def call() -> list[object]:
        answer = point.load()()
        if not isinstance(answer, Iterable):
            raise TypeError(f"an iterable of Case is expected, got {type(answer).__name__}")
        return list(answer)

    try:
        return guarded(where, call)
    except ProviderError as error:
        raise CasesError(str(error), fix="Correct or reinstall the provider's package.") from error


def _own(case: object, distribution: str, where: str) -> Case:
    """A vendor's case as the kit takes it, checked."""
    if not isinstance(case, Case):
        raise CasesError(where, expected="Case objects", got=type(case).__name__)
    if not isinstance(case.id, str) or not case.id or case.id != "".join(case.id.split()):
        raise CasesError(f"{where}: ids", expected="text without spaces", got=repr(case.id))
    if not isinstance(case.model, onnx.ModelProto) or not isinstance(case.inputs, Mapping):
        raise CasesError(
            f"{where}: case {case.id!r}",
            expected="a ModelProto and a mapping of inputs",
            got=f"{type(case.model).__name__} and {type(case.inputs).__name__}",
        )
    nodes = case.model.graph.node
    foreign = [node for node in nodes if node.domain not in _STANDARD]
    if foreign and case.expected is None:
        raise CasesError(
            f"{where}: case {case.id!r} has no expected outputs",
            fix=f"Nobody but you knows what {foreign[0].domain}.{foreign[0].op_type} gives.",
        )
    return dataclasses.replace(
        case,
        id=f"vendor/{distribution}/{case.id}",
        subject=_subject(case.model) if foreign and len(nodes) == 1 else None,
        vendor=distribution,
    )


def _subject(model: onnx.ModelProto) -> Subject:
    """The one operator of a model, with types by the vendor's schema, or else by position."""
    node = model.graph.node[0]
    version = next((o.version for o in model.opset_import if o.domain == node.domain), 1)
    signature = signature_of(node.domain, node.op_type, version)
    kinds = {info.name: info.type for info in (*model.graph.input, *model.graph.output)}
    types = {name: element_type(kind) for name, kind in kinds.items()}
    types |= {tensor.name: DataType(tensor.data_type) for tensor in model.graph.initializer}
    found: dict[str, DataType] = {}
    for side, names in (("input", node.input), ("output", node.output)):
        formals = () if signature is None else getattr(signature, f"{side}s")
        for place, name in enumerate(names):
            dtype = types.get(name)
            if dtype is not None:
                found.setdefault(_parameter(formals, side, place), dtype)
    since = version if signature is None else signature.since_version
    return Subject(node.domain, node.op_type, since, found)


def _parameter(formals: tuple[Formal, ...], side: str, place: int) -> str:
    return formals[min(place, len(formals) - 1)].kind if formals else f"{side} {place}"
