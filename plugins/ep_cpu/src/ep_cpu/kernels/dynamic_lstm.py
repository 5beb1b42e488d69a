"""com.microsoft.DynamicQuantizeLSTM: an LSTM whose weights are 8-bit integers.

Inputs and states are quantised to uint8 right before each product, with a scale of their own, as
the operator's definition asks; the gates are float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_core.types import DataType
from ep_cpu.kernels.quantize import dynamic_parameters
from ep_cpu.kernels.recurrent import Project, lstm_direction
from ep_cpu.kernels.recurrent_support import Recurrence, Setup, split_activations
from ep_cpu.kernels.support import Array
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


class _QuantizedWeight:
    """Weights [D, I, 4 H] with scale and zero point per direction or per column."""

    def __init__(self, codes: Array, scale: Array, zero_point: Array) -> None:
        if codes.ndim != 3:
            raise RunError("weights must have three axes", got=f"shape {codes.shape}")
        directions = codes.shape[0]
        zero = zero_point.reshape(directions, 1, -1).astype(np.float32)
        self.values = codes.astype(np.float32) - zero
        self.scale = scale.reshape(directions, 1, -1).astype(np.float32)

    def project(self, direction: int) -> Project:
        """Quantise, multiply, scale back; sums of whole numbers are exact up to 2**24."""
        values = self.values[direction]
        scale = self.scale[direction]

        def run(x: Array) -> Array:
            own_scale, zero = dynamic_parameters(x)
            codes: Array = np.divide(x, own_scale)
            np.rint(codes, out=codes)
            # The zero point would be added, saturated against and subtracted again.
            np.maximum(codes, -zero, out=codes)
            np.minimum(codes, 255 - zero, out=codes)
            result: Array = np.matmul(codes, values)
            np.multiply(result, own_scale * scale, out=result)
            return result

        return run


def _prepared(node: KernelNode, weight: int, scale: int, zero: int) -> _QuantizedWeight | None:
    parts = [node.constants[index] for index in (weight, scale, zero)]
    if parts[0] is None or parts[1] is None or parts[2] is None:
        return None
    return _QuantizedWeight(parts[0], parts[1], parts[2])


@TABLE.kernel("DynamicQuantizeLSTM", domain="com.microsoft", types={0: {DataType.FLOAT}})
def _dynamic_quantize_lstm(node: KernelNode) -> Kernel:
    setup = Setup.of(node)
    count = len(setup.directions)
    activations = split_activations(node, ("Sigmoid", "Tanh", "Tanh"), count)
    couple = bool(node.attr("input_forget", 0))
    ready_w = _prepared(node, 1, 8, 9)
    ready_r = _prepared(node, 2, 10, 11)
    wanted = max(len(node.node.outputs), 1)

    def run(*inputs: Any) -> Any:
        x, w, r, b, lengths, initial_h, initial_c, p = inputs[:8]
        weights = ready_w or _QuantizedWeight(w, inputs[8], inputs[9])
        recurrent = ready_r or _QuantizedWeight(r, inputs[10], inputs[11])
        walk = Recurrence(setup, x, lengths)
        hidden = recurrent.values.shape[1]
        outputs, last_h, last_c = [], [], []
        for d, backwards in enumerate(setup.directions):
            source = walk.ordered(walk.x, backwards)
            flat = weights.project(d)(source.reshape(-1, source.shape[-1]))
            gates = flat.reshape(walk.steps, walk.batch, 4 * hidden)
            if b is not None:
                gates += b[d, : 4 * hidden] + b[d, 4 * hidden :]
            y, h, c = lstm_direction(
                walk,
                setup,
                gates,
                recurrent.project(d),
                (walk.initial(initial_h, d, hidden), walk.initial(initial_c, d, hidden)),
                None if p is None else p[d].reshape(3, hidden),
                activations[d],
                couple,
            )
            outputs.append(walk.ordered(y, backwards))
            last_h.append(h)
            last_c.append(c)
        results = walk.results(outputs, [last_h, last_c])
        return results[:wanted] if wanted > 1 else results[0]

    return run
