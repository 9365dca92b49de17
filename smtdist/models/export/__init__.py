"""A fitted encoder in the formats of other tools: ONNX, PyTorch, and plain arrays."""
