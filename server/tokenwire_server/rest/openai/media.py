"""Content parts other than text. No model is served with them yet: the service refuses, and names the part."""

from __future__ import annotations

import base64
import binascii

from tokenwire.v1 import chat_pb2
from tokenwire_server.rest.openai.errors import OpenAIError
from tokenwire_server.rest.openai.fields import Fields, invalid, unsupported

__all__ = ["decode_base64", "read_media"]

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def read_media(part: Fields, kind: str) -> chat_pb2.ContentPart | None:
    """Reads an image, audio or file part; None where `kind` is none of them."""
    if kind in ("image_url", "audio_url"):
        value = part.get(kind)
        url = value if isinstance(value, str) else part.required_object(kind).required_string("url")
        media = _from_url(url, part.at(kind))
        return chat_pb2.ContentPart(image=media) if kind == "image_url" else chat_pb2.ContentPart(audio=media)
    if kind == "input_audio":
        audio = part.required_object("input_audio")
        form = audio.choice("format", tuple(_AUDIO_TYPES)) or "wav"
        data = decode_base64(audio.required_string("data"), audio.at("data"))
        return chat_pb2.ContentPart(audio=chat_pb2.MediaPart(data=data, mime_type=_AUDIO_TYPES[form]))
    if kind == "file":
        return chat_pb2.ContentPart(file=_file(part.required_object("file")))
    if kind == "video_url":
        raise unsupported(part.at("type"), "'video_url' is not supported by this server")
    return None


def _file(file: Fields) -> chat_pb2.MediaPart:
    if file.get("file_id") is not None:
        raise unsupported(file.at("file_id"))
    text = file.required_string("file_data")
    if text.startswith("data:"):
        media = _from_url(text, file.at("file_data"))
    else:
        media = chat_pb2.MediaPart(data=decode_base64(text, file.at("file_data")))
    media.filename = (file.string("filename") or "")[:256]
    return media


def _from_url(url: str, param: str) -> chat_pb2.MediaPart:
    if not url.startswith("data:"):
        if not url.startswith(("https://", "http://")):
            raise _bad(param, "expected an https, http or data URL")
        return chat_pb2.MediaPart(uri=url)
    head, comma, data = url[len("data:") :].partition(",")
    if not comma or not head.endswith(";base64"):
        raise _bad(param, "expected a data URL in base64")
    return chat_pb2.MediaPart(data=decode_base64(data, param), mime_type=head.removesuffix(";base64")[:256])


def decode_base64(text: str, param: str) -> bytes:
    """Bytes in base64; errors name `param`."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad(param, "expected base64") from error
    if not data:
        raise _bad(param, "expected at least 1 byte")
    return data


def _bad(param: str, why: str) -> OpenAIError:
    return invalid(param, f"Invalid '{param}': {why}.")
