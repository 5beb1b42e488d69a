"""What one convolution is made of: buffers, geometry, and the arguments of its kernels.

Launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ep_sdk.device_kernels.contracts import DeviceBuffer, DeviceStream
from ep_sdk.device_kernels.windows import Geometry

__all__ = ["Job", "Shifts"]


@dataclass(frozen=True, slots=True)
class Shifts:
    """What is added to elements before they are multiplied; padding is left as 0.

    Attributes:
        x: to those of the input.
        weight: to those of the weights, with `CHANNEL` for the output channel.
        parameters: kernel parameters that they name, each with a comma in front.
    """

    x: str = ""
    weight: str = ""
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One convolution under way; arguments of tail and shifts are those of its kernels."""

    stream: DeviceStream
    x: DeviceBuffer
    weight: DeviceBuffer
    y: DeviceBuffer
    geometry: Geometry
    groups: int
    tail: Sequence[Any]
    shifts: Sequence[Any]

    @property
    def images(self) -> int:
        return self.x.shape[0]

    @property
    def filters(self) -> int:
        return self.weight.shape[0]

    @property
    def channels(self) -> int:
        """Of a group."""
        return self.weight.shape[1]
