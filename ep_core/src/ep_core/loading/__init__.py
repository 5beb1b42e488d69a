"""From an ONNX file to a `Graph`, and back: parsing, guards, inlining, types, external data.

What may enter: code that reads or writes protos. What may not: anything that knows a provider.
"""
