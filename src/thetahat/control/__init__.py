"""Control with a model: computed torque, gravity compensation, PD, adaptive control, the switch
between models, the loop and its journal.
"""
