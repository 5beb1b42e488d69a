"""A vendor library built for another processor."""

import ctypes

ctypes.string_at(0)
