"""Encoders of patches: whitened rows in, codes out. They know nothing of files, runs or one another."""
