"""Cases, oracle, tolerances and runner that hold a provider to its claims."""
