"""Fourier transforms and filters: DFT, STFT, MelWeightMatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from ep_core.errors import RunError
from ep_cpu.kernels.support import Array, attribute_dtype, check_axis, scalar, widen
from ep_cpu.table import TABLE
from ep_sdk.kernels import Kernel, KernelNode


def _as_complex(x: Array) -> Array:
    """[..., 1] or [..., 2] (real, imaginary) as complex numbers without the last axis."""
    if x.shape[-1] not in (1, 2):
        raise RunError(
            "the last axis must hold real or complex numbers", expected="1 or 2", got=x.shape[-1]
        )
    wide = widen(x)
    if x.shape[-1] == 1:
        return wide[..., 0].astype(np.complex128 if wide.dtype == np.float64 else np.complex64)
    return wide[..., 0] + 1j * wide[..., 1]


def _as_pairs(x: Any, dtype: np.dtype[Any]) -> Array:
    return np.stack([x.real, x.imag], axis=-1).astype(dtype)


def dft(x: Array, length: int | None, axis: int, inverse: bool, onesided: bool) -> Array:
    """The discrete Fourier transform along `axis` of [..., 1] or [..., 2]."""
    values = _as_complex(x)
    if length is not None and length < 0:
        raise RunError("dft_length must not be negative", got=length)
    if onesided and inverse:
        # The half spectrum of a real signal: the other half are its conjugates.
        whole = length if length is not None else 2 * (values.shape[axis] - 1)
        real = np.fft.irfft(values, n=whole, axis=axis)
        return real[..., None].astype(x.dtype)
    if inverse:
        return _as_pairs(np.fft.ifft(values, n=length, axis=axis), x.dtype)
    spectrum = np.fft.fft(values, n=length, axis=axis)
    if onesided:
        kept = spectrum.shape[axis] // 2 + 1
        spectrum = spectrum[(slice(None),) * axis + (slice(0, kept),)]
    return _as_pairs(spectrum, x.dtype)


@TABLE.kernel("DFT", since=17)
def _dft(node: KernelNode) -> Kernel:
    inverse = bool(node.attr("inverse", 0))
    onesided = bool(node.attr("onesided", 0))
    fixed_axis = int(node.attr("axis", 1)) if node.version < 20 else None

    def run(x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
        count = None if length is None else int(scalar(length, "dft_length"))
        along = -2 if axis is None else int(scalar(axis, "axis"))
        along = check_axis(along if fixed_axis is None else fixed_axis, x.ndim)
        if along == x.ndim - 1:
            raise RunError("DFT can't run along the axis of real and imaginary parts", got=along)
        return dft(x, count, along, inverse, onesided)

    return run


@TABLE.kernel("STFT", since=17)
def _stft(node: KernelNode) -> Kernel:
    onesided = bool(node.attr("onesided", 1))

    def run(
        signal: Array,
        frame_step: Array,
        window: Array | None = None,
        frame_length: Array | None = None,
    ) -> Array:
        step = int(scalar(frame_step, "frame_step"))
        values = _as_complex(signal if signal.ndim == 3 else signal[..., None])
        if frame_length is not None:
            length = int(scalar(frame_length, "frame_length"))
        elif window is not None:
            length = window.shape[0]
        else:
            raise RunError("STFT needs a window or a frame_length")
        if step < 1 or not 1 <= length <= values.shape[1]:
            raise RunError("frame_step or frame_length out of range", got=(step, length))
        starts = np.arange(0, values.shape[1] - length + 1, step)
        frames = values[:, starts[:, None] + np.arange(length)]
        if window is not None:
            if window.shape != (length,):
                raise RunError("wrong length of the window", expected=length, got=window.shape)
            frames = frames * widen(window)
        spectrum = np.fft.fft(frames, axis=-1)
        if onesided:
            spectrum = spectrum[..., : length // 2 + 1]
        return _as_pairs(spectrum, signal.dtype)

    return run


@TABLE.kernel("MelWeightMatrix", since=17)
def _mel_weight_matrix(node: KernelNode) -> Kernel:
    dtype = attribute_dtype(int(node.attr("output_datatype", 1)))

    def run(bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Array:
        count = int(scalar(bins, "num_mel_bins"))
        size = int(scalar(length, "dft_length"))
        sample_rate = int(scalar(rate, "sample_rate"))
        if count < 1 or size < 1 or sample_rate < 1:
            raise RunError("MelWeightMatrix needs positive sizes", got=(count, size, sample_rate))
        edges = [_to_mel(float(scalar(edge, "an edge"))) for edge in (low, high)]
        # The edges of overlapping triangles, evenly spaced in mel, as spectrum bins.
        step = (edges[1] - edges[0]) / (count + 2)
        hertz = 700 * (10 ** ((np.arange(count + 2) * step + edges[0]) / 2595) - 1)
        places = ((size + 1) * hertz // sample_rate).astype(np.int64)
        spectrum = size // 2 + 1
        result = np.zeros((spectrum, count))
        for index in range(count):
            first, middle, last = (int(place) for place in places[index : index + 3])
            rise = np.arange(first, middle + 1)
            if middle == first:
                _put(result, index, np.array([middle]), np.array([1.0]))
            else:
                _put(result, index, rise, (rise - first) / (middle - first))
            fall = np.arange(middle, last)
            if last > middle:
                _put(result, index, fall, (last - fall) / (last - middle))
        return result.astype(dtype)

    return run


def _put(matrix: Array, column: int, rows: Array, values: Array) -> None:
    inside = rows < matrix.shape[0]
    matrix[rows[inside], column] = values[inside]


def _to_mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))
