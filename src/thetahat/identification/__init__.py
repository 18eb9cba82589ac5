"""From samples to estimates: information, identifiability, estimators, uncertainty."""
