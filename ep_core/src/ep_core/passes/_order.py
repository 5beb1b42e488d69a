"""The order of nodes: producers before readers."""

from __future__ import annotations

from collections.abc import Mapping

from ep_core.graph import Node

__all__ = ["in_order"]


def in_order(nodes: Mapping[int, Node], producers: Mapping[str, int]) -> list[int]:
    """Return the keys of `nodes` so that producers come first, otherwise as they are.

    A cycle is cut anywhere; the check after each pass then finds it.
    """
    order: list[int] = []
    done: set[int] = set()
    opened: set[int] = set()
    for start in nodes:
        stack = [start]
        while stack:
            key = stack[-1]
            if key in done:
                stack.pop()
                continue
            makers = (producers.get(name) for name in nodes[key].reads)
            waiting = [maker for maker in makers if maker is not None and maker not in done]
            if not waiting or key in opened:
                stack.pop()
                done.add(key)
                order.append(key)
            else:
                opened.add(key)
                stack.extend(reversed(waiting))
    return order
