"""Uncertainty of an estimate: noise model, covariance, torque bands, essential parameters."""
