"""Robots: the ten numbers of a body, the tree of joints, and the files they come from."""
