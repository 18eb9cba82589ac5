"""Speed, measured beside a peer in the same run. `make bench` prints all of it; the figures are the
ratios.
"""
