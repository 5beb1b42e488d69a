"""The `ep` command: its frame (`cli`), its output (`console`) and the commands that ship with it.

Commands of other packages come in through the hook `ep_commands`. What can be of use without a
command line belongs in `ep_core` or `ep_sdk`, not here.
"""
