"""Actuator parameters from commanded and measured positions: drive, friction, delay, bias."""
