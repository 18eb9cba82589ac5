"""Robot files: URDF and MJCF read, written back, and the drive terms they cannot hold."""
