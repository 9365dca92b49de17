"""What coders of patches share: how patches are made, how a fit begins, streaming, files, and manifold transforms on codes."""
