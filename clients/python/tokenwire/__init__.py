"""Tokenwire's Python client."""
