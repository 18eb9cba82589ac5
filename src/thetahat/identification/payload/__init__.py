"""Payloads: mass, centre of mass and inertia of what a link holds."""
