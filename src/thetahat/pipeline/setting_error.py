"""The error about a setting, which the command line words as its option."""

from __future__ import annotations

from thetahat.errors import UsageError


class SettingError(UsageError):
    """A setting that cannot be used; the command line names its own option for it."""

    def __init__(self, setting: str, rest: str) -> None:
        super().__init__(f"{setting}{rest}")
        self.setting, self.rest = setting, rest
