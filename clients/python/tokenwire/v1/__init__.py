"""Stubs of the contract, package `tokenwire.v1`: `from tokenwire.v1 import chat_pb2, chat_pb2_grpc`."""
