"""What holds for every message and RPC of the contract, read from the descriptors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api import annotations_pb2, field_behavior_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from tokenwire_server.backend import contract_services

ROOT = Path(__file__).parents[2]
BUF = Path(sys.executable).parent / "buf"
METHODS = [method for service in contract_services().values() for method in service.methods]


def fields(message: Descriptor, seen: set[str]) -> Iterator[FieldDescriptor]:
    if message.full_name in seen or not message.full_name.startswith("tokenwire."):
        return
    seen.add(message.full_name)
    for field in message.fields:
        yield field
        # The entry of a map is the compiler's, and has no comments or options of its own.
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from fields(field.message_type, seen)


def test_rpc_names_are_unique_across_services() -> None:
    names = [method.name for method in METHODS]
    assert len(names) == len(set(names))
    assert not {"Check", "Watch"} & set(names)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_rpc_has_an_http_rule_under_its_own_path(method: MethodDescriptor) -> None:
    rule = method.GetOptions().Extensions[annotations_pb2.http]
    path = rule.get or rule.post
    assert path.startswith(("/tokenwire/v1/", "/tokenwire/admin/v1/"))
    assert rule.get or rule.body == "*"


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_request_field_says_how_it_behaves(method: MethodDescriptor) -> None:
    for field in fields(method.input_type, set()):
        in_oneof = field.containing_oneof is not None and not field.containing_oneof.name.startswith("_")
        behaviour = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
        assert behaviour or in_oneof, f"{field.full_name} has no field_behavior"


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_no_unsigned_numbers_and_enums_start_unspecified(method: MethodDescriptor) -> None:
    unsigned = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED32}
    for message in (method.input_type, method.output_type):
        for field in fields(message, set()):
            assert field.type not in unsigned, field.full_name
            if field.enum_type is not None:
                assert field.enum_type.values_by_number[0].name.endswith("_UNSPECIFIED")


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_inference_requests_carry_a_timeout(method: MethodDescriptor) -> None:
    if method.containing_service.name in ("ChatService", "GenerationService", "EmbeddingService"):
        assert method.input_type.fields_by_name["timeout"].message_type.full_name == "google.protobuf.Duration"
        assert "request_id" in method.input_type.fields_by_name


def test_a_field_removed_on_purpose_breaks(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    path = tmp_path / "protos/tokenwire/v1/output.proto"
    text = path.read_text()
    assert "  bytes token_bytes = 3;\n" in text
    path.write_text(text.replace("  bytes token_bytes = 3;\n", "", 1))
    built = subprocess.run([BUF, "build", "--as-file-descriptor-set", "-o", "image.binpb"], cwd=tmp_path, check=True)
    assert built.returncode == 0
    against = ["--against", "protos/baseline.binpb", "--config", "buf.yaml"]
    broken = subprocess.run(
        [BUF, "breaking", "image.binpb", *against], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert broken.returncode != 0
    assert "token_bytes" in broken.stdout
