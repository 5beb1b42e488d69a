"""The kit as a pytest plugin; `ep_compliance.suite` is its front."""
