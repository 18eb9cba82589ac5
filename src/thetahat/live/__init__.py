"""The live page: a robot that is being identified, in the browser; the loop never waits for it."""
