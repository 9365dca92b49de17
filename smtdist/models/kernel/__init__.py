"""Representation learning without networks: contrastive losses and an autoencoder in a kernel's space.

Esser, Fleissner and Ghoshdastidar, "Non-parametric Representation Learning with Kernels" (2024).
"""
