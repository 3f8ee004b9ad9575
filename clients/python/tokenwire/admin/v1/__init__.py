"""Stubs of `tokenwire.admin.v1`: `from tokenwire.admin.v1 import admin_pb2, admin_pb2_grpc`."""
