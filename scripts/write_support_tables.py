"""Writes docs/support.md: which operators the providers of this repository are certified for.

It is made from the certificates in the packages; `make certify` renews both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import onnx

from ep_compliance.certificates.tables import column_heads, markdown_tables
from ep_core.certificates.file import Certificate, CertificateRow, read_certificate

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "support.md"
PATTERNS = (
    "plugins/*/src/*/certificates/*.json",
    "ep_sdk/src/ep_sdk/certificates/*.json",
)

HEADER = """\
# Operators by provider

What the providers in this repository are certified for. Written by
`scripts/write_support_tables.py` from the certificates in their packages; a test fails when it is
out of date. A certificate grants what a full run of the compliance kit has shown, so that these
tables can't say more than was tested. `ep certificate table` makes them of any certificates,
`ep certificate show` tells more of one.
"""

LEGEND = f"""\
## How to read the tables

Versions are those of the operator's schema in onnx {onnx.__version__}, the first opset of each.
Types are listed by type parameter of the newest schema. A cell says what is certified:

- `all`: every version, and every type of each.
- `from 13`, `1 to 6`: these versions, with every type.
- `floats`, `all but string`: these types, of the operator's only type parameter or of the one that
  is named. One that isn't named has all its types. Where versions differ, `·` stands between them.

Each type parameter is taken by itself: not every combination need be certified. *floats* are
float16, bfloat16, float and double; *integers* signed and unsigned ones of 8 to 64 bits, *float8*
all five kinds.

An operator without a column's entry may run all the same: on another provider, or in the core,
which runs `Constant`, `If`, `Loop` and `Scan` itself and expands operators that are functions
(`SequenceMap` and `FlexAttention` among them) where nobody takes them.
"""


def certificates() -> list[Certificate]:
    """Those in the packages, by provider and device."""
    paths = [path for pattern in PATTERNS for path in ROOT.glob(pattern)]
    found = [read_certificate(path) for path in paths]
    return sorted(found, key=lambda item: (item.provider, item.device_fingerprint))


def columns(found: Sequence[Certificate]) -> list[list[Certificate]]:
    """Certificates of one provider that grant the same rows share a column."""
    shared: dict[tuple[str, frozenset[CertificateRow]], list[Certificate]] = {}
    for certificate in found:
        shared.setdefault((certificate.provider, frozenset(certificate.rows)), []).append(
            certificate
        )
    return list(shared.values())


def document(found: Sequence[Certificate]) -> str:
    """The whole document."""
    groups = columns(found)
    firsts = [group[0] for group in groups]
    lines = [
        f"- **{head}**: {certificate.distribution} {certificate.version} on "
        f"`{certificate.device_fingerprint}`, level {certificate.level}, {certificate.date}, "
        f"{len(certificate.waivers) or 'no'} waivers"
        for head, group in zip(column_heads(firsts), groups, strict=True)
        for certificate in group
    ]
    return "\n".join([HEADER, *lines, "", LEGEND, markdown_tables(firsts)]).rstrip() + "\n"


def main() -> int:
    """Write the document."""
    TARGET.write_text(document(certificates()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
