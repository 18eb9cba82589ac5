"""The main job, once: logs in, an `Identification` out. Command line, live page and fleet call it."""
