"""Questions that onnx can't answer, and standard operators that say the same.

`record_contrib_cases.py` has ONNX Runtime answer them. Nothing of ours is asked here.
"""
