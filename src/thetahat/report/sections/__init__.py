"""Sections of a report: torques, bodies."""
