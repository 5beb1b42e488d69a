"""Makes sessions as the command line asks for them, ours and, for comparison, ONNX Runtime's.

ONNX Runtime is no dependency: it is imported by name when somebody asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ep_core import CertificatePolicy, GraphOptimizationLevel, InferenceSession, SessionOptions
from ep_core.errors import EpError, NotSupportedError, OptionError, did_you_mean
from ep_core.signature import NodeArg
from ep_tools.requests import SessionRequest

__all__ = [
    "OnnxRuntimeSession",
    "Session",
    "by_name",
    "onnxruntime_module",
    "open_session",
    "provider_options",
    "session_options",
]

_ERRORS_ONLY = 3

Model = str | bytes
"""A path, or a serialized model."""


class Session(Protocol):
    """What `InferenceSession` and `OnnxRuntimeSession` have in common."""

    def get_inputs(self) -> list[NodeArg]: ...

    def get_outputs(self) -> list[NodeArg]: ...

    def get_overridable_initializers(self) -> list[NodeArg]: ...

    def run(self, output_names: None, input_feed: Mapping[str, Any]) -> list[Any]: ...

    def close(self) -> None: ...


def open_session(request: SessionRequest, model: Model | None = None) -> InferenceSession:
    """Make a session of ours.

    Args:
        request: how.
        model: what to load in place of `request.model`.

    Raises:
        EpError: the model, a provider or an option is no good.
    """
    return InferenceSession(
        request.model if model is None else model,
        sess_options=session_options(request),
        providers=request.providers,
        provider_options=provider_options(request),
    )


def session_options(request: SessionRequest) -> SessionOptions:
    """Return the settings that a request stands for.

    Raises:
        OptionError: one is no good, or is given twice.
    """
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(request.level)
    options.intra_op_num_threads = request.intra_op_num_threads
    if request.certificate_policy is not None:
        options.certificate_policy = CertificatePolicy(request.certificate_policy)
    for name, length in by_name("--dim", request.free_dimensions).items():
        options.add_free_dimension_override_by_name(name, length)
    options.placement_strategy = request.placement.strategy
    options.pin = by_name("--pin", request.placement.pins)
    options.max_copies = request.placement.max_copies
    options.max_partitions = request.placement.max_partitions
    options.memory_limits = by_name("--memory-limit", request.placement.memory_limits)
    options.tune = request.placement.tune
    options.cost_cache = request.placement.cost_cache
    # The placement, which the session would log a warning of, is part of what we print.
    options.log_severity_level = _ERRORS_ONLY
    return options


def by_name(flag: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a flag that may be given once for each name.

    Raises:
        OptionError: a name is given twice.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(f"{flag} {name} is given twice", fix="Leave one of them out.")
        found[name] = value
    return found


def provider_options(request: SessionRequest) -> list[dict[str, str]] | None:
    """One dict per provider, in the order of the providers; None if there are no options.

    Raises:
        OptionError: an option is for a provider that the request doesn't name.
    """
    if not request.provider_options:
        return None
    names = request.providers or []
    options: dict[str, dict[str, str]] = {name: {} for name in names}
    for provider, key, value in request.provider_options:
        if provider not in options:
            raise OptionError(
                f"--provider-option {provider}.{key} is for a provider that isn't in --providers",
                fix=did_you_mean(provider, names) if names else f"Add --providers {provider}.",
            )
        options[provider][key] = value
    return [options[name] for name in names]


# ---------------------------------------------------------------- the other runtime


def onnxruntime_module() -> Any:
    """Import ONNX Runtime.

    Raises:
        NotSupportedError: it isn't installed, or can't be imported.
    """
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise NotSupportedError(
            "onnxruntime can't be imported",
            got=str(error),
            fix="Install it with: pip install onnxruntime",
        ) from error


class OnnxRuntimeSession:
    """A session of ONNX Runtime's CPU provider, which raises our errors.

    Args:
        request: `providers` and `provider_options` are ours and don't count here.
        model: what to load in place of `request.model`.

    Raises:
        EpError: ONNX Runtime is missing, or can't load the model.
    """

    def __init__(self, request: SessionRequest, model: Model | None = None) -> None:
        runtime = onnxruntime_module()
        options = runtime.SessionOptions()
        level = GraphOptimizationLevel(request.level).name
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        options.intra_op_num_threads = request.intra_op_num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            self._session: Any = runtime.InferenceSession(
                request.model if model is None else model,
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:
            raise EpError(f"onnxruntime can't load the model: {error}") from error

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that every run needs."""
        return _node_args(self._session.get_inputs())

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return _node_args(self._session.get_outputs())

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default."""
        return _node_args(self._session.get_overridable_initializers())

    def run(self, output_names: None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Compute all outputs.

        Raises:
            EpError: whatever ONNX Runtime says.
        """
        try:
            outputs: list[Any] = self._session.run(output_names, input_feed)
        except Exception as error:
            raise EpError(f"onnxruntime can't run the model: {error}") from error
        return outputs

    def close(self) -> None:
        """Let go of the session."""
        self._session = None


def _node_args(args: Sequence[Any]) -> list[NodeArg]:
    return [NodeArg(arg.name, arg.type, list(arg.shape)) for arg in args]
