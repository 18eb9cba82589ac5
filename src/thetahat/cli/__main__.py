"""`python -m thetahat.cli` is `thetahat`."""

from thetahat.cli import main

main()
