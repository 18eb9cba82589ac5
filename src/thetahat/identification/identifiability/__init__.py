"""Structural identifiability: base parameters, null space, names of parameter sums."""
