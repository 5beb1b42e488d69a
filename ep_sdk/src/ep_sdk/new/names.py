"""Which names a new provider may have. Only package metadata is read; no provider is imported."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import entry_points

from ep_core.errors import OptionError
from ep_core.hookspecs import PROVIDER_GROUP

__all__ = ["check_name", "check_vendor"]

_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_MAX_NAME = 30
_MAX_VENDOR = 60
_RESERVED = frozenset({"compliance", "core", "sdk", "tools"})


def check_name(name: str) -> None:
    """Refuse a name that can't be a provider's, or that is taken here.

    Raises:
        OptionError: not an identifier in lower case, reserved, or that of an installed provider
            or package.
    """
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise OptionError(
            f"{name!r} can't be the name of a provider",
            expected=f"a lower-case identifier of at most {_MAX_NAME} characters, like mychip",
            fix=_suggestion(name),
        )
    if name.startswith("ep_"):
        raise OptionError(
            f"the package of provider {name!r} would be called ep_{name}",
            fix=f"Leave out the prefix: {name.removeprefix('ep_')}",
        )
    if name in _RESERVED:
        raise OptionError(
            f"the name {name!r} is reserved, since ep_{name} is a package of this project",
            fix="Choose another name.",
        )
    for point in entry_points(group=PROVIDER_GROUP):
        if point.name == name:
            owner = point.dist.name if point.dist is not None else point.value
            raise OptionError(
                f"a provider {name!r} is installed already, by {owner}",
                fix="Choose another name, or uninstall that one first.",
            )
    # A plain folder of that name on the path also has a spec, but no origin; it's no package yet.
    found = importlib.util.find_spec(f"ep_{name}")
    if found is not None and found.origin is not None:
        raise OptionError(
            f"a package ep_{name} is installed already, at {found.origin}",
            fix="Choose another name, or uninstall that one first.",
        )


def check_vendor(vendor: str) -> None:
    """Refuse a vendor name that can't stand on one line of a source file.

    Raises:
        OptionError: empty, too long, or with control characters.
    """
    if not vendor.strip() or len(vendor) > _MAX_VENDOR or not vendor.isprintable():
        raise OptionError(
            f"{vendor!r} can't be the name of a vendor",
            expected=f"1 to {_MAX_VENDOR} printable characters",
        )


def _suggestion(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    shorter = re.sub(r"^[0-9_]+", "", words)[:_MAX_NAME].rstrip("_")
    return f"For example: {shorter or 'mychip'}"
