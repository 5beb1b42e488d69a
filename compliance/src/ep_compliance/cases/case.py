"""What the kit asks of a provider: a case is a small model, inputs, and how to judge the outputs.

A case knows nothing of providers or of how it is run.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from ep_core.types import DataType

__all__ = ["Case", "Level", "Recorded", "Subject"]


class Level(enum.IntEnum):
    """How thorough a run is; a run of one level includes the levels before it."""

    MUSTPASS = 0
    FULL = 1
    SOAK = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """The operator that a case is about: what a certificate's row can be granted for.

    Attributes:
        since_version: version of the schema in force in the case's model.
        dtypes: element types by type parameter of the schema, e.g. `{"T": FLOAT}`.
    """

    domain: str
    op_type: str
    since_version: int
    dtypes: Mapping[str, DataType] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Recorded:
    """Expected outputs that somebody has computed once, and that nobody computes again.

    Attributes:
        source: who, with version.
        spreads: by output, element by element, how far it moves for a relative change of the float
            inputs, in units of that change; None or nothing where that isn't known.
    """

    source: str
    spreads: Sequence[np.ndarray[Any, Any] | None] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """One question with one answer.

    Attributes:
        id: unique and stable, e.g. `official/test_relu` or `matrix/Relu-14/float/rank0`.
        model: a valid model; the judge runs nothing but this.
        inputs: values by input name, as `InferenceSession.run` takes them.
        expected: the right outputs in the model's order; None leaves them to the oracle.
        subject: the operator it is about, None for chains and whole graphs.
        level: the lowest level that runs it.
        draws: the outputs are random; only dtype and shape are compared.
        recorded: where `expected` comes from, if it is final; the oracle isn't asked then.
        vendor: the distribution that brings the case, empty for the kit's own.
        made_by: what computes `inputs` and `expected` whenever the case is collected, with version;
            such values may differ in their last bits between machines. Empty if they are fixed.
    """

    id: str
    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    expected: Sequence[Any] | None = None
    subject: Subject | None = None
    level: Level = Level.FULL
    draws: bool = False
    recorded: Recorded | None = None
    vendor: str = ""
    made_by: str = ""

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs that are tensors."""
        return {name: v for name, v in self.inputs.items() if isinstance(v, np.ndarray)}
