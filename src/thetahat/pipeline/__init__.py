"""The main job: logs in, an `Identification` out. Command line, live page and fleet call it."""
