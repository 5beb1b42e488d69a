"""Plans and their runs: flat steps, who makes them, the loop over them, control flow.

What is decided here is order, copies, waits and lifetimes. Who runs which node was decided before.
"""
