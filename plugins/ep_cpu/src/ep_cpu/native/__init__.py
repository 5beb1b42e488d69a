"""The native core: parts of a partition as one call into compiled code.

Here nodes are translated into operations of the native module, fused, and divided into segments.
What an operator computes by itself, and whatever isn't translated, stays in `ep_cpu.kernels`, which
also computes whatever the native code refuses when it sees the real shapes.
"""

from __future__ import annotations
