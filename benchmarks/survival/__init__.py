"""Fits under faults: what is killed, stopped, filled up or damaged, when, and how the fit ends."""
