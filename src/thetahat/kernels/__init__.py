"""Compiled kernels on raw arrays: they check nothing and allocate nothing; their public
face does.
"""
