"""Secrets never leave in a message: not even when an upstream sends them back to us in its own error.

`Redactor` knows the secrets of one tier exactly and the common forms of keys roughly (an upstream may echo another key,
or half of it behind asterisks). It works on whole texts, before they are cut to a length: a cut through a key would
leave a piece that no longer looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

REDACTED = "[redacted]"
_SECRET_CHARS_MIN = 4
_SHAPES = re.compile(r"\bsk-[\w*.-]{6,}|\bBearer\s+[^\s\"',;]+", re.IGNORECASE)
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the values of headers whose names suggest credentials, each also without its scheme (`Bearer`)."""
    values = [value for name, value in headers.items() if _SECRET_NAME.search(name)]
    return values + [value.rpartition(" ")[2] for value in values]


class Redactor:
    """Takes secrets out of texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN}
        self._secrets = sorted(found, key=len, reverse=True)  # a secret may begin with a shorter one

    def __call__(self, text: str) -> str:
        """Return `text` without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _SHAPES.sub(REDACTED, text)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"
