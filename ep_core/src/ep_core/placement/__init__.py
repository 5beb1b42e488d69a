"""Placement as a computation: a cost for every unit and copy, and the cheapest assignment.

Data in, data out. No provider is called here, nothing is compiled or run, and no clock is read.
"""
