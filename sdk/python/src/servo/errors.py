"""Errors that decide how a task ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

USER_CODE_EXCEPTION = "USER_CODE_EXCEPTION"
INVALID_CONFIGURATION = "INVALID_CONFIGURATION"
SCHEMA_VIOLATION = "SCHEMA_VIOLATION"
IMPORT_ERROR = "IMPORT_ERROR"


class Error(Exception):
    """Failure with a code. The code decides whether the task is retried."""

    def __init__(
        self,
        message: str,
        *,
        code: str = USER_CODE_EXCEPTION,
        details: Mapping[str, Any] | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})
        self.remedy = remedy


class Retry(Error):
    """Failure that is retried, after the delay of the retry policy or after `after`."""

    def __init__(
        self,
        message: str,
        *,
        after: float | timedelta | None = None,
        code: str = "SERVICE_UNAVAILABLE",
        details: Mapping[str, Any] | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, code=code, details=details, remedy=remedy)
        self.after = after.total_seconds() if isinstance(after, timedelta) else after


class Permanent(Error):
    """Failure that is not retried, whatever its code."""


class Yield(Exception):
    """Return the task to the queue. Its next attempt continues from the cursor."""

    def __init__(self, cursor: str | None = None) -> None:
        super().__init__("the task yields")
        self.cursor = cursor


class Cancelled(BaseException):
    """Raised in the running function when its task should end. Let it pass."""


class DeclarationError(Exception):
    """Mistake in a declaration, with the file and line of the declaration."""

    def __init__(self, file: str, line: int, message: str, remedy: str = "") -> None:
        super().__init__(f"{file}:{line}: {message}" + (f" ({remedy})" if remedy else ""))
        self.file = file
        self.line = line
        self.message = message
        self.remedy = remedy
