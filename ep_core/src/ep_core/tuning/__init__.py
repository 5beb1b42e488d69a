"""Measured costs: what nodes, copies and whole placements take on the devices that are here.

The one room that runs work in order to time it. It measures and remembers; how costs become a
placement is decided in `placement`. Nothing measured here changes what a model computes.
"""
