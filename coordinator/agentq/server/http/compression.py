"""Compresses responses for clients that accept it, if they are large enough."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

COMPRESS_BYTES_MIN = 1400
"""A response that fits into one packet gains nothing."""
GZIP_LEVEL = 4
UNCOMPRESSED_PREFIX = "/runner/"
"""Answers to runners are short and so frequent that even the check would cost."""


class CompressionMiddleware(GZipMiddleware):
    """Gzip middleware that passes other requests through without wrapping their messages."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, minimum_size=COMPRESS_BYTES_MIN, compresslevel=GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(UNCOMPRESSED_PREFIX) or not _accepts_gzip(scope):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _accepts_gzip(scope: Scope) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
