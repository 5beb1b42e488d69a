"""A small, correct host provider, and the factory that opens it or one of its broken children."""

from __future__ import annotations

import numpy as np

from ep_core.contracts import API_VERSION, OptionSpec, ProviderInfo
from ep_core.hookspecs import hookimpl
from ep_core.types import DataType, DeviceInfo
from ep_sdk import KernelProvider, KernelTable, StandardFactory
from ep_sdk.options import as_int

NUMBERS = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64})
FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE})


def relu(x):
    return np.maximum(x, x.dtype.type(0))


BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "MatMul": np.matmul}
UNARY = {"Relu": relu, "Abs": np.abs, "Sqrt": np.sqrt}


def table_with(**replaced):
    """The kernel table, with other functions for the operators that are named.

    A function takes the inputs and returns the output.
    """
    table = KernelTable({"": 28})
    for op_type, function in {**BINARY, **UNARY, **replaced}.items():
        types = FLOATS if op_type in ("Sqrt", "MatMul") else NUMBERS
        since = 7 if op_type in ("Add", "Sub", "Mul") else 1
        _add(table, op_type, since, types, function)

    @table.kernel("Identity", types={0: NUMBERS}, view=True)
    def identity(node):
        return lambda x: x

    return table


def _add(table, op_type, since, types, function):
    @table.kernel(op_type, since=since, types={"T": types})
    def make(node):
        return function


class CorrectProvider(KernelProvider):
    """The parent of the broken ones."""

    table = table_with()


def factory_of(provider_class, name="zoo", options=None, list_devices=None):
    """A factory around a provider class."""
    info = ProviderInfo(
        name=name,
        version="1.0",
        api_version=API_VERSION,
        options={"threads": OptionSpec(1, "number of threads", as_int(1)), **(options or {})},
    )
    device = DeviceInfo(name, "0", "cpu", name="zoo", fingerprint="zoo-1")
    return StandardFactory(info, list_devices or (lambda: [device]), provider_class)


class Plugin:
    """What an entry point of a zoo distribution names."""

    def __init__(self, provider_class, name):
        self._factory = factory_of(provider_class, name)

    @hookimpl
    def ep_provider_factory(self):
        return self._factory
