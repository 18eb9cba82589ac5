"""Dynamics of a robot: inverse and forward dynamics, mass matrix, regressors, configurations."""
