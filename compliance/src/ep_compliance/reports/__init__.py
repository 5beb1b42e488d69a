"""What a person, or another program, gets to read of a run."""
