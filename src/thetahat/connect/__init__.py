"""Connections to robots: a simulated one here; drivers implement the same protocol."""
