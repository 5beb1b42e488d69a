"""A run from start to end: jobs, worker processes, verdicts, waivers, results."""
