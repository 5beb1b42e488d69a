"""Work as a number: what bounds the solver, so that the clock needn't."""

from __future__ import annotations

__all__ = ["Budget"]


class Budget:
    """Work that may still be done, in units, tensors and arcs looked at."""

    def __init__(self, amount: int) -> None:
        self.left = amount

    def spend(self, amount: int) -> bool:
        """Take an amount; False once there is nothing left."""
        self.left -= amount
        return self.left > 0
