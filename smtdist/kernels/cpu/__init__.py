"""Bodies compiled for the CPU; they return the integers of `smtdist.kernels.generic`, sooner."""
