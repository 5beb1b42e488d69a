"""Kernels for devices whose compilers take C with a prelude: the whole set of operators.

A provider meets `contracts` for its device and derives from `provider.DeviceProvider`; it names the
prelude in which its compiler reads the sources. Nothing in here knows a vendor's library, and
`import ep_sdk` doesn't load it.
"""
