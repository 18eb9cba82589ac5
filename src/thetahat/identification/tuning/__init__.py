"""Choices made from the training rows: friction model, low-pass, delay, prior strength."""
