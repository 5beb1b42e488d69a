"""Compiled partitions kept between sessions, in files of one folder.

`content` says what a subgraph is, `binding` what else an artifact depends on, `folder` keeps the
files, and `cache` asks providers to export and import. Nothing here decides what is compiled, and
nothing here ever makes a session fail: what can't be kept or taken back is compiled.
"""
