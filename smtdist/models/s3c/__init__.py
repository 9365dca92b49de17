"""Spike-and-slab sparse coding (Goodfellow, Courville and Bengio 2012), and the coders it is compared with."""
