"""Which nodes a provider may run: the policy, and the rows of the certificate that fits."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ep_core.certificates.file import Certificate
from ep_core.certificates.lookup import advice_for, find_certificate
from ep_core.contracts import ProviderInfo
from ep_core.errors import OptionError, did_you_mean
from ep_core.graph import Graph, Node
from ep_core.types import DeviceInfo

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["DEFAULT_POLICY", "CertificatePolicy", "Grants", "certificate_policy", "grants_for"]

_LOG = logging.getLogger("ep_core")


class CertificatePolicy(enum.Enum):
    """What happens to a node without a certificate: refused, granted with a note, or granted."""

    ENFORCE = "enforce"
    WARN = "warn"
    OFF = "off"


DEFAULT_POLICY = CertificatePolicy.ENFORCE


@dataclass(frozen=True, slots=True)
class Grants:
    """Answers "may this provider run this node", for one provider and device, when called.

    Attributes:
        certificate: None if there is none that fits.
        reason: why there is none.
    """

    policy: CertificatePolicy
    certificate: Certificate | None = None
    reason: str = ""

    def __call__(self, graph: Graph, node: Node) -> tuple[bool, str]:
        """Return whether the node is granted; a text with a yes is a warning, with a no a reason.

        Types are taken from `graph`, which must hold the node.
        """
        if self.policy is CertificatePolicy.OFF:
            return True, ""
        reason = self.reason
        if self.certificate is not None:
            reason = _refusal(self.certificate, graph, node)
        return (not reason or self.policy is CertificatePolicy.WARN), reason


def certificate_policy() -> CertificatePolicy:
    """The policy in force: `EP_CERTIFICATE_POLICY` (enforce, warn, off), else the default.

    Raises:
        OptionError: the variable holds something else.
    """
    text = os.environ.get("EP_CERTIFICATE_POLICY")
    if not text:
        return DEFAULT_POLICY
    try:
        return CertificatePolicy(text.lower())
    except ValueError:
        known = [policy.value for policy in CertificatePolicy]
        raise OptionError(
            "environment variable EP_CERTIFICATE_POLICY",
            expected=" or ".join(known),
            got=repr(text),
            fix=did_you_mean(text.lower(), known),
        ) from None


def grants_for(
    info: ProviderInfo,
    distribution: Distribution | None,
    device: DeviceInfo,
    options: Mapping[str, Any],
    policy: CertificatePolicy | None = None,
) -> Grants:
    """Look a provider's certificate up, unless the policy is off; None is the policy in force.

    Args:
        options: parsed values of all options of the provider.

    Under `warn` a missing certificate is logged here, once per provider that is opened.
    """
    policy = policy or certificate_policy()
    if policy is CertificatePolicy.OFF:
        return Grants(policy)
    certificate, reason = find_certificate(info, distribution, device, options)
    if certificate is None and policy is CertificatePolicy.WARN:
        _LOG.warning("provider %r: %s", info.name, reason)
    return Grants(policy, certificate, reason)


def _refusal(certificate: Certificate, graph: Graph, node: Node) -> str:
    """Why no row grants the node, or nothing."""
    advice = advice_for(certificate.provider)
    rows = certificate.by_operator.get((node.domain, node.op_type))
    if not rows:
        return f"{advice} (no row for {node.key})"
    rows = [row for row in rows if row.since <= node.since_version <= row.until]
    if not rows:
        return f"{advice} (no row for {node.key} version {node.since_version})"
    if any(
        _types_fit(row.inputs, graph, node.inputs) and _types_fit(row.outputs, graph, node.outputs)
        for row in rows
    ):
        return ""
    types = ", ".join(str(graph.type_of(name)) for name in (*node.inputs, *node.outputs) if name)
    return f"{advice} (no row for {node.key} with types {types})"


def _types_fit(
    allowed: Sequence[frozenset[str] | None], graph: Graph, names: Sequence[str]
) -> bool:
    """Whether values may stand where a row has these types.

    A type that nothing in the model tells fits wherever any value may stand: nobody can know
    before the run, and the provider has to look at the value itself.
    """
    for position, name in enumerate(names):
        if not name:
            continue
        if not allowed:
            return False
        types = allowed[min(position, len(allowed) - 1)]
        kind = graph.type_of(name)
        if types is not None and not (types if kind is None else str(kind) in types):
            return False
    return True
