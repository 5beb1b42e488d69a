"""Sessions in which the provider under test works beside providers of the kit's own.

One partner works in host memory and is computed by onnx's reference evaluator, another is a
simulated device with memory of its own. Nothing is installed: all are registered by hand, under
names of the kit's, for as long as a check takes. Judging stays with the checks.
"""
