"""Reports people look at: sections are data, figures are plain dictionaries for Plotly.js, and one
page draws them.
"""
