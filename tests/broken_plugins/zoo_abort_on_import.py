"""A vendor library that meets a failed assertion."""

import os

os.write(2, b"zoo.cpp:17: assertion failed: device != nullptr\n")
os.abort()
