"""Cases whose right answers somebody else has computed once, kept as data.

For operators that neither onnx's reference nor the kit's own definitions can answer for: those of
com.microsoft, of which onnx defines nothing, and forms of a few others. The repository's script
`record_contrib_cases.py` asks ONNX Runtime and writes `microsoft.jsonl`; reading it needs no ONNX
Runtime.
"""
