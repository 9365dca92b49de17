"""Out-of-core, distributed, white-box representation learning with the sparse manifold transform."""
