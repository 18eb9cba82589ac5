"""Motions that show a robot's parameters: trajectories, the limits they keep, and their design."""
