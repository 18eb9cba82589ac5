"""From files of measurements to samples: logs, their audit, signals, and what of them is fit for
use.
"""
