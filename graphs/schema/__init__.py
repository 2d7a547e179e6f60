"""The file format, version 1, as pydantic records."""
