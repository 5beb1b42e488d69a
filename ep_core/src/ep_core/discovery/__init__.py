"""Finding providers: entry points, probing, options, certificates.

What may enter: code that looks at installed packages. What may not: graphs to place or to run.
"""
