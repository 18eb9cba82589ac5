"""Physically consistent fits: misfit, constraints, interior-point method, feasible points."""
