"""Certificates: files that grant a provider the nodes it has been shown to compute rightly.

The core only reads them; making one is the kit's work, which the core never imports. They guard
against drift and mistakes, not against a hostile plugin in the same process.
"""
