"""What a caller may set on a session and on a run, under ONNX Runtime's names.

Only settings that do something are here; an unknown one is an error, not a silent no-op.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from typing import Any

from ep_core.certificates.grants import CertificatePolicy
from ep_core.errors import OptionError, did_you_mean
from ep_core.levels import GraphOptimizationLevel
from ep_core.loading.load import LoadLimits
from ep_core.placement.rules import Rules, as_bytes, as_gain, as_limit, as_patterns, as_strategy
from ep_core.placement.solve import Limits

__all__ = ["RunOptions", "SessionOptions"]

_CONFIG_ENTRIES = {"session.disable_cpu_ep_fallback": "disable_cpu_fallback"}


class _Settings:
    """Takes only the settings it has from the start, each checked by `_check_<name>` if any."""

    def __setattr__(self, name: str, value: Any) -> None:
        defaults = type(self)._defaults()
        if name not in defaults:
            raise OptionError(
                f"{type(self).__name__} has no setting {name!r}", fix=did_you_mean(name, defaults)
            )
        check = _CHECKS.get(name)
        object.__setattr__(self, name, check(name, value) if check else value)

    def __init__(self) -> None:
        for name, value in type(self)._defaults().items():
            object.__setattr__(self, name, value)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        raise NotImplementedError


def _level(name: str, value: Any) -> GraphOptimizationLevel:
    try:
        return GraphOptimizationLevel(value)
    except ValueError:
        known = ", ".join(f"{item.name}={item.value}" for item in GraphOptimizationLevel)
        raise OptionError(name, expected=f"one of {known}", got=repr(value)) from None


def _count(name: str, value: Any) -> int:
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not number or not 0 <= value < 2**63:
        raise OptionError(name, expected="an int from 0 up, of 64 bits", got=repr(value))
    return int(value)


def _severity(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 4:
        raise OptionError(name, expected="an int from 0 (verbose) to 4 (fatal)", got=repr(value))
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(name, expected="True or False", got=repr(value))
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(name, expected="a str", got=repr(value))
    return value


def _path(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, (str, os.PathLike)):
        return None if value in (None, "") else os.fsdecode(value)
    raise OptionError(name, expected="a path", got=repr(value))


def _limits(name: str, value: Any) -> LoadLimits:
    if not isinstance(value, LoadLimits):
        raise OptionError(name, expected="a LoadLimits", got=repr(value))
    return value


def _policy(name: str, value: Any) -> CertificatePolicy | None:
    try:
        return None if value is None else CertificatePolicy(value)
    except ValueError:
        known = ", ".join(repr(item.value) for item in CertificatePolicy)
        raise OptionError(name, expected=f"one of {known}, or None", got=repr(value)) from None


def _config_entry(key: Any) -> str:
    """The setting behind one of ONNX Runtime's string settings."""
    setting = _CONFIG_ENTRIES.get(_text("the key of a session config entry", key))
    if setting is None:
        raise OptionError(
            f"unknown session config entry {key!r}", fix=did_you_mean(key, _CONFIG_ENTRIES)
        )
    return setting


_CHECKS = {
    "graph_optimization_level": _level,
    "intra_op_num_threads": _count,
    "log_severity_level": _severity,
    "disable_cpu_fallback": _flag,
    "terminate": _flag,
    "logid": _text,
    "optimized_model_filepath": _path,
    "load_limits": _limits,
    "certificate_policy": _policy,
    "cache_dir": _path,
    "cache_max_bytes": _count,
    "tune": _flag,
    "cost_cache": _path,
    "enable_profiling": _flag,
    "profile_file_prefix": _text,
    "placement_strategy": as_strategy,
    "pin": as_patterns,
    "prefer": as_patterns,
    "max_copies": as_limit,
    "max_partitions": as_limit,
    "min_gain": as_gain,
    "memory_limits": as_bytes,
}


class SessionOptions(_Settings):
    """Settings of an `InferenceSession`.

    Attributes:
        graph_optimization_level: how far graph passes go; default ORT_ENABLE_ALL.
        optimized_model_filepath: where to save the optimised model; None for nowhere.
        log_severity_level: 0 verbose, 1 info, 2 warning (default), 3 error, 4 fatal; applies to
            this session's lines in the logger `ep_core`.
        logid: shown in the session's log lines.
        intra_op_num_threads: threads inside one operator, 0 for the provider's own choice; given
            to those providers that declare an option of that name.
        disable_cpu_fallback: nodes that the named providers don't take are an error instead of
            running on the CPU provider.
        load_limits: guards for untrusted models.
        certificate_policy: None takes the environment's `EP_CERTIFICATE_POLICY`, else the default.
        cache_dir: a folder where compiled partitions are kept for later sessions, None for
            nowhere. It holds code for devices: it must be the user's own.
        cache_max_bytes: the most that it may hold; what was used longest ago goes first.
        tune: measure what nodes, copies and whole placements take where several providers can run
            a node, for up to half a minute, and place by that. What was measured is remembered.
        cost_cache: the folder where measured costs are remembered; None for a folder in the user's
            cache, which only sessions with `tune` use. Without `tune` a session reads the folder
            that is given and measures nothing.
        enable_profiling: time what the session does; see `InferenceSession.end_profiling`.
        profile_file_prefix: the start of the trace's path; time, process and number follow.
        placement_strategy: "greedy" gives every node to the first provider in order that can run
            it; "cost" looks for the least predicted time, with assumed speeds where none are
            declared; "auto" (default) is "cost" if of every provider that was named the speed or
            the costs are known, or if greedy exceeds `max_copies` or `max_partitions`.
        pin: a provider by pattern, for nodes that may run nowhere else. A pattern is the name of a
            node, perhaps with `*` and `?`, and in a body with or without the body's path before it
            (`if_1/then_branch/conv`); `op:Conv` for a type of operator; `between:a->b` for the
            nodes between two tensors.
        prefer: the same, if nothing speaks against it: elsewhere such a node counts as taking
            twice as long. Of two preferences for a node the first one counts.
        max_copies, max_partitions: for each graph, which is the main one or a body; None for no
            limit.
        min_gain: the part of the predicted time, from 0 to 1, that a better placement has to save
            before greedy, or one provider wherever possible, is given up for it.
        memory_limits: bytes of device memory by provider, for what this session's constants and
            values are predicted to take; nodes go elsewhere until it fits. A provider that isn't
            named here has as much as its device says, or no limit if it says nothing.

    Raises:
        OptionError: an unknown setting or a value that it can't have.
    """

    graph_optimization_level: GraphOptimizationLevel
    optimized_model_filepath: str | None
    log_severity_level: int
    logid: str
    intra_op_num_threads: int
    disable_cpu_fallback: bool
    load_limits: LoadLimits
    certificate_policy: CertificatePolicy | None
    cache_dir: str | None
    cache_max_bytes: int
    tune: bool
    cost_cache: str | None
    enable_profiling: bool
    profile_file_prefix: str
    placement_strategy: str
    pin: Mapping[str, str]
    prefer: Mapping[str, str]
    max_copies: int | None
    max_partitions: int | None
    min_gain: float
    memory_limits: Mapping[str, int]

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_free_dimensions", {})

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {
            "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
            "optimized_model_filepath": None,
            "log_severity_level": 2,
            "logid": "",
            "intra_op_num_threads": 0,
            "disable_cpu_fallback": False,
            "load_limits": LoadLimits(),
            "certificate_policy": None,
            "cache_dir": None,
            "cache_max_bytes": 2**30,
            "tune": False,
            "cost_cache": None,
            "enable_profiling": False,
            "profile_file_prefix": "ep_profile",
            "placement_strategy": "auto",
            "pin": {},
            "prefer": {},
            "max_copies": None,
            "max_partitions": None,
            "min_gain": 0.0,
            "memory_limits": {},
        }

    @property
    def placement_rules(self) -> Rules:
        """The settings that say where nodes run."""
        limits = Limits(self.max_copies, self.max_partitions, self.min_gain)
        return Rules(self.placement_strategy, self.pin, self.prefer, limits, self.memory_limits)

    @property
    def uses_measured_costs(self) -> bool:
        """True where placement reads what was measured, or measures."""
        return self.tune or self.cost_cache is not None

    @property
    def free_dimensions(self) -> dict[str, int]:
        """Lengths given to open dimensions by name."""
        return dict(self._free_dimensions)  # type: ignore[attr-defined]

    def add_free_dimension_override_by_name(self, dim_name: str, dim_value: int) -> None:
        """Fix a symbolic dimension of the model's inputs; lengths are counted in elements.

        A dimension without a name is called after input and axis, such as `x.2`.
        """
        value = _count(f"free dimension {dim_name!r}", dim_value)
        self._free_dimensions[_text("dim_name", dim_name)] = value  # type: ignore[attr-defined]

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set one of ONNX Runtime's string settings; "1" is true and "0" false."""
        setting = _config_entry(key)
        if value not in ("0", "1"):
            raise OptionError(f"session config entry {key!r}", expected="'0' or '1'", got=value)
        setattr(self, setting, value == "1")

    def get_session_config_entry(self, key: str) -> str:
        """Return what `add_session_config_entry` set, or the default."""
        return "1" if getattr(self, _config_entry(key)) else "0"


class RunOptions(_Settings):
    """Settings of one `run`.

    Attributes:
        terminate: set it, also from another thread, to end the run at the next step or loop
            round with RunCancelledError.
    """

    terminate: bool

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {"terminate": False}
