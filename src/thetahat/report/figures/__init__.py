"""Figures as plain dictionaries {data, layout} for Plotly.js: one small pure function each, for the
report, the studies and the live page.
"""
