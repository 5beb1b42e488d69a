"""Taking a provider through its contracts, and watching it. No right answers are known here."""
