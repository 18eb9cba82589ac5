"""Informative samples: a few samples that say what many say."""
