"""Values that users hold: `OrtValue` on any device, addresses, exchange through DLPack, lifetimes.

A value knows its memory and who opened it. Plans and sessions must not enter.
"""
