"""What a command line says to feed becomes the feeds of a run.

Types and shapes come from the session's own description of its inputs; whether a feed fits is
left to the session, which explains it better.
"""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ep_core.errors import EpError, FeedError, OptionError, did_you_mean
from ep_core.signature import NodeArg
from ep_core.types import DataType
from ep_tools.images import load_image
from ep_tools.inputs import ArrayFile, InputSource, LiteralValue, RandomValues
from ep_tools.literals import literal_array
from ep_tools.requests import FeedRequest
from ep_tools.sessions import Session, by_name

__all__ = [
    "InputSpec",
    "feeds_for",
    "make_feeds",
    "random_values",
    "telling_of_random",
    "unknown_input",
]

Array = np.ndarray[Any, Any]

# Some exporters write "?" for every dimension they know nothing of, which is no name.
_NAMELESS = (None, "", "?")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model.

    Attributes:
        name: the input's name.
        type: ONNX's type string, such as `tensor(float)`.
        shape: lengths, and names of open dimensions. One that has no name in the model is called
            after input and axis, such as `x.2`.
    """

    name: str
    type: str
    shape: tuple[int | str, ...]

    @classmethod
    def of(cls, arg: NodeArg) -> InputSpec:
        """Describe an input of a session."""
        shape = tuple(
            f"{arg.name}.{axis}" if dim in _NAMELESS else dim for axis, dim in enumerate(arg.shape)
        )
        return cls(arg.name, arg.type, shape)

    @property
    def dtype(self) -> DataType:
        """The element type.

        Raises:
            FeedError: the input isn't a tensor.
        """
        word = self.type.removeprefix("tensor(").removesuffix(")").upper()
        if self.type.startswith("tensor(") and word in DataType.__members__:
            return DataType[word]
        raise FeedError(
            f"input '{self.name}' can't be given on the command line",
            expected="a tensor",
            got=self.type,
            fix="Run the model from Python with ep_core.InferenceSession.",
        )

    @property
    def is_optional(self) -> bool:
        """True if the model does without a value."""
        return self.type.startswith("optional(")

    def with_shape(self, lengths: tuple[int, ...]) -> InputSpec:
        """Return the input with a shape that the caller knows better than the model.

        Raises:
            OptionError: it contradicts what the model says.
        """
        # A model says nothing of the shape where it has no dimensions to show: the rank is then
        # 0 or unknown, and the session knows which.
        fits = not self.shape or (
            len(self.shape) == len(lengths)
            and all(isinstance(a, str) or a == b for a, b in zip(self.shape, lengths, strict=True))
        )
        if not fits:
            raise OptionError(
                f"--shape {self.name} contradicts the model",
                expected=str(self),
                got=list(lengths),
            )
        return InputSpec(self.name, self.type, lengths)

    def __str__(self) -> str:
        return f"{self.name}: {self.type} [{', '.join(map(str, self.shape))}]"


def feeds_for(
    session: Session, request: FeedRequest
) -> tuple[dict[str, Array], dict[str, InputSource]]:
    """Return the feeds that a request asks for, and where each comes from, by input name.

    Raises:
        FeedError, OptionError: as `make_feeds`; or a name is given twice.
    """
    sources: dict[str, InputSource] = by_name("--input", request.inputs)
    shapes = by_name("--shape", request.shapes)
    required = _with_shapes([InputSpec.of(arg) for arg in session.get_inputs()], shapes)
    extra = [InputSpec.of(arg) for arg in session.get_overridable_initializers()]
    optional = _with_shapes(extra, shapes)
    for name in shapes:
        if all(spec.name != name for spec in (*required, *optional)):
            raise unknown_input(name, [spec.name for spec in (*required, *optional)])
    if request.fill:
        for spec in required:
            if not spec.is_optional:
                sources.setdefault(spec.name, RandomValues())
    return make_feeds(required, optional, sources, by_name("--dim", request.dims)), sources


@contextlib.contextmanager
def telling_of_random(sources: Mapping[str, InputSource]) -> Iterator[None]:
    """Add to an error of a run which inputs had random values, for they may be what is wrong."""
    names = [name for name, source in sources.items() if isinstance(source, RandomValues)]
    try:
        yield
    except EpError as error:
        if not names:
            raise
        raise EpError(
            f"{error}\nRandom values were fed to: {', '.join(names)}. If the model can't work with "
            "them, give others with --input, or other lengths with --dim and --shape."
        ) from error


def make_feeds(
    required: Sequence[InputSpec],
    optional: Sequence[InputSpec],
    sources: Mapping[str, InputSource],
    dims: Mapping[str, int],
) -> dict[str, Array]:
    """Return one array per source.

    Args:
        required: inputs that need a value.
        optional: inputs that the model has a default for.
        sources: where each value comes from, by input name.
        dims: lengths for open dimensions, by name.

    Raises:
        FeedError: an input is missing, unknown, or its source can't be used.
        OptionError: no input has a dimension of that name.
    """
    specs = {spec.name: spec for spec in (*required, *optional)}
    for name in sources:
        if name not in specs:
            raise unknown_input(name, specs)
    missing = [spec for spec in required if spec.name not in sources and not spec.is_optional]
    if missing:
        raise _missing(missing)
    known = {dim for spec in specs.values() for dim in spec.shape if isinstance(dim, str)}
    for dim in dims:
        if dim not in known:
            raise OptionError(
                f"no input has an open dimension '{dim}'", fix=did_you_mean(dim, known)
            )
    return {name: _value(specs[name], source, dims) for name, source in sources.items()}


def random_values(spec: InputSpec, seed: int, dims: Mapping[str, int]) -> Array:
    """Return an array of the input's type and shape; open dimensions are 1 unless in `dims`.

    Floats and complex parts lie in [0, 1), 8-bit integers anywhere in their range, other integers
    are 0 or 1 (most often they are indices, lengths or masks, where more would be out of range),
    strings are lower-case letters. Values depend on the seed and the input's name only.

    Raises:
        FeedError: not a tensor, or too large for this machine.
    """
    dtype = spec.dtype
    shape = tuple(1 if size is None else size for size in _sizes(spec.shape, dims))
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    try:
        return _draw(generator, dtype, shape)
    except (MemoryError, ValueError) as error:
        raise FeedError(
            f"can't make random values of shape {list(shape)} for input '{spec.name}'",
            got=str(error),
            fix="Give smaller lengths with --dim.",
        ) from error


def _draw(generator: np.random.Generator, dtype: DataType, shape: tuple[int, ...]) -> Array:
    if dtype is DataType.STRING:
        letters = np.array([chr(code) for code in range(ord("a"), ord("z") + 1)], dtype=object)
        chosen = letters[generator.integers(0, len(letters), shape)]
        return np.asarray(chosen, dtype=object).reshape(shape)
    if dtype in (DataType.UINT8, DataType.INT8):
        limits = np.iinfo(dtype.numpy)
        values: Array = generator.integers(limits.min, limits.max, shape, dtype.numpy, True)
    elif dtype is DataType.BOOL or dtype.is_integer:
        values = generator.integers(0, 2, shape)
    elif dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
        values = generator.random(shape) + 1j * generator.random(shape)
    elif dtype is DataType.DOUBLE:
        values = generator.random(shape)
    else:
        values = generator.random(shape, dtype=np.float32)
    return np.asarray(values, dtype=dtype.numpy).reshape(shape)


def _value(spec: InputSpec, source: InputSource, dims: Mapping[str, int]) -> Array:
    if isinstance(source, RandomValues):
        return random_values(spec, source.seed, dims)
    if isinstance(source, ArrayFile):
        return _as_type(_load_array(source), spec.dtype)
    sizes = _sizes(spec.shape, dims)
    if isinstance(source, LiteralValue):
        return literal_array(spec.name, spec.dtype, sizes, source.value)
    return load_image(source.path, spec.name, spec.dtype, spec.shape, sizes)


def _load_array(source: ArrayFile) -> Array:
    try:
        with source.path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            return np.asarray(loaded[_key(source, loaded.files)])
    # numpy raises all of these for files that are missing, cut short or something else.
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, FeedError):
            raise
        raise FeedError(
            f"can't read arrays from '{source.path}'",
            got=str(error),
            fix="Check the path, and that the file was written by numpy.save or numpy.savez.",
        ) from error


def _key(source: ArrayFile, keys: Sequence[str]) -> str:
    if not source.key and len(keys) == 1:
        return keys[0]
    if source.key in keys:
        return source.key
    if source.key:
        raise FeedError(
            f"'{source.path}' has no array '{source.key}'", fix=did_you_mean(source.key, keys)
        )
    raise FeedError(
        f"'{source.path}' holds {len(keys)} arrays",
        expected=f"a key, as in {source.path}:KEY",
        fix=f"Keys: {', '.join(keys)}." if keys else None,
    )


def _as_type(array: Array, dtype: DataType) -> Array:
    """Give an array back the type that numpy's file format has no word for."""
    wanted = dtype.numpy
    if dtype is DataType.STRING and array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)
    return array


def _sizes(shape: tuple[int | str, ...], dims: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(dims.get(dim) if isinstance(dim, str) else dim for dim in shape)


def _with_shapes(
    specs: Sequence[InputSpec], shapes: Mapping[str, tuple[int, ...]]
) -> list[InputSpec]:
    return [spec.with_shape(shapes[spec.name]) if spec.name in shapes else spec for spec in specs]


def unknown_input(name: str, known: Iterable[str]) -> FeedError:
    """The error for an input that the model hasn't."""
    return FeedError(f"the model has no input '{name}'", fix=did_you_mean(name, known))


def _missing(specs: Sequence[InputSpec]) -> FeedError:
    listing = "\n".join(f"  {spec}" for spec in specs)
    noun = "input" if len(specs) == 1 else "inputs"
    example = " ".join(f"--input {spec.name}=random" for spec in specs)
    return FeedError(
        f"no value for {len(specs)} {noun} of the model:\n{listing}\n"
        "Give each a value: --input NAME=FILE.npy, FILE.npz:KEY, IMAGE.png, NUMBER, 1,2,3 or random"
        f" (see ep run --help).\nTo try it out:\n  {example}"
    )
