"""Subcommands of `ep`; each module has one, and a hook that offers it."""
