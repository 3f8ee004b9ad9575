"""What both clients are made of, but for the connection itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from tokenwire import _transport
from tokenwire._retry import Attempts

DEFAULT_TIMEOUT_S = 600.0
"""Ten minutes: a long answer of a slow model. A call without a deadline could wait for ever."""
DEFAULT_MAX_RETRIES = 2

ChannelOptions = Mapping[str, str | int]


@dataclass(frozen=True)
class Settings:
    """The checked arguments of a client."""

    place: _transport.Endpoint
    options: list[tuple[str, str | int]]
    timeout: float
    max_retries: int
    connections: int
    metadata: _transport.Metadata = field(repr=False)  # holds the key

    @classmethod
    def of(
        cls,
        target: str,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        secure: bool | None = None,
        tls: grpc.ChannelCredentials | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        connections: int = 1,
        metadata: Sequence[tuple[str, str]] = (),
        options: ChannelOptions | None = None,
    ) -> Settings:
        """Checks the arguments; they are those of `Client`.

        Raises:
            ValueError: One of them is out of its range; the text begins with its name.
        """
        if max_retries < 0:
            raise ValueError("max_retries: expected 0 or more")
        if connections < 1:
            raise ValueError("connections: expected 1 or more")
        place = _transport.endpoint(target, secure=secure, tls=tls)
        return cls(
            place=place,
            options=_transport.channel_options(
                place, max_retries=max_retries, connections=connections, extra=options or {}
            ),
            timeout=_seconds(timeout),
            max_retries=max_retries,
            connections=connections,
            metadata=_transport.call_metadata(api_key, metadata),
        )

    def attempts(self, timeout: float | None) -> Attempts:
        """The attempts of one call, within `timeout` seconds or the client's own timeout."""
        return Attempts(self.max_retries, self.timeout if timeout is None else _seconds(timeout))

    def channel(self) -> grpc.Channel:
        """A new channel."""
        if self.place.credentials is None:
            return grpc.insecure_channel(self.place.address, self.options)
        return grpc.secure_channel(self.place.address, self.place.credentials, self.options)

    def aio_channel(self) -> grpc.aio.Channel:
        """A new channel of the running event loop."""
        if self.place.credentials is None:
            return grpc.aio.insecure_channel(self.place.address, self.options)
        return grpc.aio.secure_channel(self.place.address, self.place.credentials, self.options)


def _seconds(timeout: float) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout: expected seconds, got {type(timeout).__name__}")
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError("timeout: expected seconds above 0")
    return float(timeout)


def channel(
    target: str,
    *,
    secure: bool | None = None,
    tls: grpc.ChannelCredentials | None = None,
    options: ChannelOptions | None = None,
) -> grpc.Channel:
    """A plain `grpc.Channel` with the client's options, for the generated stubs and for other services there.

    The API key is not part of a channel: pass `metadata=[("authorization", "Bearer ...")]` with each call.

    Args:
        target: As for `Client`.
        secure: As for `Client`.
        tls: As for `Client`.
        options: Channel options that go ahead of the client's own.

    Raises:
        ValueError: The target cannot be read, or it is not clear whether to use TLS.
    """
    return Settings.of(target, secure=secure, tls=tls, options=options).channel()


def aio_channel(
    target: str,
    *,
    secure: bool | None = None,
    tls: grpc.ChannelCredentials | None = None,
    options: ChannelOptions | None = None,
) -> grpc.aio.Channel:
    """`channel`, for `grpc.aio`. Call it in the event loop that will use it."""
    return Settings.of(target, secure=secure, tls=tls, options=options).aio_channel()
