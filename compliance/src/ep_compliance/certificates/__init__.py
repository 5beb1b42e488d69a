"""From verdicts to certificates, and what is done with these."""
