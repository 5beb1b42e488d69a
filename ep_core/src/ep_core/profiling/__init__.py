"""What a session does and how long it takes, as a trace for Perfetto or chrome://tracing.

A session that isn't profiled knows this room by the class `NoProfiling`, which wraps nothing.
What decides something, and what runs a model, must not enter.
"""
