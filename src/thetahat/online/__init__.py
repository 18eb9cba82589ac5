"""Identification while the robot moves: causal filter, memories, the identifier, its gate, and the
watch on the model in use.
"""
