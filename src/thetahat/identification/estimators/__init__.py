"""Estimators: least squares, prior, positive, consistent, robust."""
