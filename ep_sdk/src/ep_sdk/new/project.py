"""Fills in the templates and puts the new folder in place, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from ep_core.contracts import API_VERSION
from ep_core.errors import EpError, OptionError, did_you_mean
from ep_sdk.new.names import check_name, check_vendor

__all__ = ["KINDS", "create_project"]

KINDS = ("kernel", "compiler")

# Where each template goes; the ones of a kind stand under its name. An empty template makes an
# empty file.
_COMMON = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/test.yml",
    "waivers.toml": "waivers.toml",
    "test_compliance.py": "tests/test_compliance.py",
    "init.py": "src/$package/__init__.py",
    "py.typed": "src/$package/py.typed",
}
_BY_KIND = {
    "kernel": {
        "kernel/provider.py": "src/$package/provider.py",
        "kernel/kernels.py": "src/$package/kernels.py",
        "kernel/test_provider.py": "tests/test_$package.py",
    },
    "compiler": {
        "compiler/provider.py": "src/$package/provider.py",
        "compiler/test_provider.py": "tests/test_$package.py",
    },
}

# What the code of each kind imports beside ep-core and ep-sdk.
_LIBRARY = {"kernel": "numpy>=1.26", "compiler": "onnx>=1.18"}


def create_project(
    name: str, parent: Path, *, kind: str = "kernel", vendor: str | None = None
) -> Path:
    """Write the provider package `ep_NAME` and return its folder.

    Args:
        name: the provider's short name, a lower-case identifier.
        parent: an existing folder to write it into.
        kind: `kernel` or `compiler`.
        vendor: who makes it; by default made from the name.

    Raises:
        OptionError: the name, kind or vendor won't do, or the name is taken.
        EpError: the folder exists already, or can't be written. Nothing is left behind.
    """
    check_name(name)
    if kind not in KINDS:
        raise OptionError(f"unknown kind {kind!r}", fix=did_you_mean(kind, KINDS))
    words = _words(name, kind, vendor)
    check_vendor(words["vendor"])
    target = parent / words["package"]
    if not parent.is_dir():
        raise EpError(f"there is no folder '{parent}'", fix="Create it first.")
    if target.exists() or target.is_symlink():
        raise EpError(f"'{target}' exists already", fix="Remove it, or give another --dir.")
    try:
        _write(target, _render({**_COMMON, **_BY_KIND[kind]}, words))
    except OSError as error:
        raise EpError(f"can't write '{target}'", got=str(error)) from error
    return target


def _words(name: str, kind: str, vendor: str | None) -> dict[str, str]:
    """What the templates may refer to."""
    title = "".join(part.capitalize() for part in name.split("_"))
    maker = title if vendor is None else vendor
    return {
        "name": name,
        "package": f"ep_{name}",
        "distribution": f"ep-{name.replace('_', '-')}",
        "title": title,
        "vendor": maker,
        # A JSON string without escapes for letters is also one of Python and of TOML.
        "vendor_literal": json.dumps(maker, ensure_ascii=False),
        "library": _LIBRARY[kind],
        "api_version": str(API_VERSION),
    }


def _render(templates: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each file by its path in the new folder."""
    folder = files("ep_sdk.new") / "templates"
    return {
        Template(path).substitute(words): Template(
            folder.joinpath(f"{source}.tmpl").read_text(encoding="utf-8")
        ).substitute(words)
        for source, path in templates.items()
    }


def _write(target: Path, texts: Mapping[str, str]) -> None:
    """Write everything beside the target first; one rename then makes it visible."""
    workshop = Path(tempfile.mkdtemp(prefix=".ep_new_", dir=target.parent))
    try:
        draft = workshop / target.name
        for path, text in texts.items():
            file = draft / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        os.rename(draft, target)  # noqa: PTH104 - Path.rename is the same call
    finally:
        shutil.rmtree(workshop)
