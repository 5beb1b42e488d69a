"""Minimum cuts of sparse networks, in whole numbers and without recursion.

A preflow is pushed towards the sink in waves: exact distances first, then every node's excess one
step down, the farthest nodes first, so that a wave looks at each arc once. Knows nothing of
placement. A node's arcs from the source and to the sink are one number, its excess: what it has to
send, or, below zero, what it can still take to the sink.
Source: A. V. Goldberg, R. E. Tarjan, A new approach to the maximum-flow problem, JACM 35(4), 1988.
"""

from __future__ import annotations

__all__ = ["ENDLESS", "Network"]

ENDLESS = 1 << 62
"""Room that no flow fills."""
_FAR = -2


class Network:
    """A network under construction, then cut once.

    Args:
        size: nodes that there are from the start; `new_node` adds more.
    """

    def __init__(self, size: int) -> None:
        self.excess = [0] * size
        self.work = 0
        self._heads: list[int] = []
        self._room: list[int] = []
        self._arcs: list[list[int]] = [[] for _ in range(size)]

    def new_node(self) -> int:
        """Add a node and return its number."""
        self.excess.append(0)
        self._arcs.append([])
        return len(self.excess) - 1

    def connect(self, tail: int, head: int, forward: int, backward: int) -> None:
        """Add an arc each way; a cut with only `tail` on the source's side pays `forward`."""
        arc = len(self._heads)
        self._heads += (head, tail)
        self._room += (forward, backward)
        self._arcs[tail].append(arc)
        self._arcs[head].append(arc + 1)

    def cut(self) -> list[bool]:
        """By node, True on the sink's side; of all minimum cuts the one with fewest such nodes."""
        while True:
            fronts, level = self._distances()
            if not self._wave(fronts, level):
                return [distance != _FAR for distance in level]

    def _distances(self) -> tuple[list[list[int]], list[int]]:
        """Steps from each node to the nearest one that still takes; nodes by distance."""
        heads, room, arcs = self._heads, self._room, self._arcs
        level = [_FAR] * len(self.excess)
        front = [node for node, excess in enumerate(self.excess) if excess < 0]
        for node in front:
            level[node] = 0
        fronts = []
        while front:
            fronts.append(front)
            distance = len(fronts)
            reached = []
            for node in front:
                for arc in arcs[node]:
                    tail = heads[arc]
                    if level[tail] == _FAR and room[arc ^ 1]:
                        level[tail] = distance
                        reached.append(tail)
            front = reached
        self.work += len(level) + len(heads)
        return fronts, level

    def _wave(self, fronts: list[list[int]], level: list[int]) -> bool:
        """Push all excess as far down as it goes; False if there was none to push."""
        heads, room, arcs, excess = self._heads, self._room, self._arcs, self.excess
        pushed = False
        for distance in range(len(fronts) - 1, 0, -1):
            for node in fronts[distance]:
                left = excess[node]
                if left <= 0:
                    continue
                pushed = True
                for arc in arcs[node]:
                    free = room[arc]
                    if free and level[heads[arc]] == distance - 1:
                        amount = free if free < left else left
                        room[arc] = free - amount
                        room[arc ^ 1] += amount
                        excess[heads[arc]] += amount
                        left -= amount
                        if not left:
                            break
                excess[node] = left
        return pushed
