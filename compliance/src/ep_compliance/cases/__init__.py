"""Cases: small models with inputs, and where they come from. No provider and no verdict enters."""
