"""Runs whose inputs and outputs lie where the caller wants them.

With ONNX Runtime's names: `IOBinding`, and the ways to run beside `run`. What decides who computes
a node must not enter: a bound run has the partitions that every run has.
"""
