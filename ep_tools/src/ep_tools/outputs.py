"""What a model gave back: described in a few figures, or saved in numpy's formats."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ep_core.errors import EpError, NotSupportedError
from ep_core.types import DataType

__all__ = ["OutputSummary", "save_outputs", "summarise"]

Array = np.ndarray[Any, Any]
SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """One output in a few figures.

    Attributes:
        name: the output's name; `name[0]` and so on for the members of a sequence.
        type: ONNX's word for the type, such as `tensor(float)`.
        shape: lengths; None for what isn't a tensor.
        values: the first few elements in row-major order.
        minimum, maximum, mean: over the finite elements of a real numeric tensor, else None.
        nan, inf: how many elements aren't finite.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    values: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    nan: int = 0
    inf: int = 0

    @property
    def truncated(self) -> bool:
        """True if the tensor has more elements than `values`."""
        return self.shape is not None and math.prod(self.shape) > len(self.values)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; elements that JSON has no number for become strings."""
        return {
            "name": self.name,
            "type": self.type,
            "shape": None if self.shape is None else list(self.shape),
            "values": [_json_value(value) for value in self.values],
            "min": self.minimum,
            "max": self.maximum,
            "mean": self.mean,
            "nan": self.nan,
            "inf": self.inf,
        }


def summarise(name: str, value: Any) -> Iterator[OutputSummary]:
    """Describe one output; a sequence gives one summary per member."""
    if isinstance(value, list):
        if not value:
            yield OutputSummary(name, "empty sequence", None)
        for index, member in enumerate(value):
            yield from summarise(f"{name}[{index}]", member)
    elif isinstance(value, Mapping):
        pairs = [f"{key}: {member}" for key, member in list(value.items())[:SHOWN_VALUES]]
        yield OutputSummary(name, f"map of {len(value)}", None, tuple(pairs))
    elif value is None:
        yield OutputSummary(name, "nothing", None)
    else:
        yield _summarise_tensor(name, np.asarray(value))


def save_outputs(target: str, outputs: Mapping[str, Any]) -> list[Path]:
    """Save tensors, and sequences of tensors, under the output's names.

    Args:
        target: a `.npz` file, or a folder that gets one `.npy` file per output. Characters that
            don't suit a file name become `_`.
        outputs: values by output name. Element types that numpy's format has no word for are
            saved as raw bytes, which `ep run` knows how to read.

    Returns:
        The files written.

    Raises:
        NotSupportedError: an output is neither a tensor nor a sequence of tensors.
        EpError: the file can't be written.
    """
    arrays: dict[str, Array] = {}
    for name, value in outputs.items():
        arrays.update(_arrays(name, value))
    path = Path(target)
    try:
        if path.suffix.lower() == ".npz":
            _write_archive(path, arrays)
            return [path]
        return _write_folder(path, arrays)
    except OSError as error:
        raise EpError(
            f"can't save the outputs to '{target}'",
            got=str(error),
            fix="Give a .npz file or a folder that can be written.",
        ) from error


def _summarise_tensor(name: str, array: Array) -> OutputSummary:
    dtype = DataType.from_numpy(array.dtype)
    shown = tuple(array.reshape(-1)[:SHOWN_VALUES].tolist())
    summary = OutputSummary(name, f"tensor({dtype.text})", array.shape, shown)
    if not (dtype.is_float or dtype.is_integer) or array.size == 0:
        return summary
    wide = array if dtype is DataType.DOUBLE or dtype.is_integer else array.astype(np.float32)
    finite = wide
    nan = inf = 0
    if dtype.is_float:
        nan = int(np.isnan(wide).sum())
        inf = int(np.isinf(wide).sum())
        finite = wide[np.isfinite(wide)]
    if finite.size == 0:
        return OutputSummary(name, summary.type, array.shape, shown, nan=nan, inf=inf)
    exact = finite.astype(np.int64) if dtype.bits < 8 else finite
    with np.errstate(over="ignore"):
        mean = float(exact.mean(dtype=np.float64))
    return OutputSummary(
        name,
        summary.type,
        array.shape,
        shown,
        minimum=exact.min().item(),
        maximum=exact.max().item(),
        # The sum of huge doubles may overflow; such a mean says nothing.
        mean=mean if math.isfinite(mean) else None,
        nan=nan,
        inf=inf,
    )


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from _arrays(f"{name}[{index}]", member)
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        yield name, array.astype(str) if array.dtype == object else array
    else:
        raise NotSupportedError(
            f"output '{name}' can't be saved",
            expected="a tensor or a sequence of tensors",
            got=type(value).__name__,
            fix="Leave --output out, or run the model from Python.",
        )


def _write_archive(path: Path, arrays: Mapping[str, Array]) -> None:
    # numpy.savez takes the names as keywords, where an output called "file" would clash.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_folder(folder: Path, arrays: Mapping[str, Array]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.npy" for stem in _file_stems(list(arrays))]
    for path, array in zip(paths, arrays.values(), strict=True):
        with path.open("wb") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)
    return paths


def _file_stems(names: Sequence[str]) -> list[str]:
    """Return one file name per output, all different also where case doesn't count."""
    taken: set[str] = set()
    stems = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9._\[\]-]", "_", name).lstrip(".") or "output"
        stem = base
        number = 2
        while stem.lower() in taken:
            stem = f"{base}_{number}"
            number += 1
        taken.add(stem.lower())
        stems.append(stem)
    return stems
