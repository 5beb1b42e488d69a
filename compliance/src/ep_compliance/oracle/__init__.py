"""What is right, and how near to it is near enough. No provider enters."""
