"""Tokenwire's Python client: large language models over gRPC.

`Client` and `AsyncClient` speak to a Tokenwire server; `tokenwire.errors` draws what they raise; `tokenwire.testing`
has a fake server for tests of your own; `tokenwire.v1` holds the contract's messages, which are what calls return.
"""

from __future__ import annotations

from tokenwire import errors
from tokenwire._arguments import ChatArguments, EmbedArguments, GenerateArguments, RenderArguments
from tokenwire._async_client import AsyncClient
from tokenwire._async_stream import AsyncStream
from tokenwire._client import Client
from tokenwire._messages import message, text
from tokenwire._settings import aio_channel, channel
from tokenwire._sync_stream import Stream
from tokenwire._transport import version as _version
from tokenwire.errors import (
    AlreadyExistsError,
    ApiError,
    CallResetError,
    CancelledByServerError,
    ClientClosedError,
    DeadlineExceededError,
    FailedPreconditionError,
    IncompleteStreamError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    TokenwireError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "AsyncClient",
    "AsyncStream",
    "CallResetError",
    "CancelledByServerError",
    "ChatArguments",
    "Client",
    "ClientClosedError",
    "DeadlineExceededError",
    "EmbedArguments",
    "FailedPreconditionError",
    "GenerateArguments",
    "IncompleteStreamError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "RenderArguments",
    "ResourceExhaustedError",
    "Stream",
    "TokenwireError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "__version__",
    "aio_channel",
    "channel",
    "errors",
    "message",
    "text",
]

__version__ = _version()
