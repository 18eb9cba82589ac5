"""Names of the forms of the equation of motion (data/regressor_form.py): what a command line lists
before anything heavy is loaded.
"""

FORMS = ("torque", "momentum", "filtered")
