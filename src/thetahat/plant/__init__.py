"""Simulated robots: two engines behind one interface, with friction, sensors and actuators as real
ones have them.
"""
