"""Execution backends: in-process streaming, or sharded workers with a cache."""
