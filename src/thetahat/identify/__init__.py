"""From samples to estimates: columns, identifiability, information, estimators."""
