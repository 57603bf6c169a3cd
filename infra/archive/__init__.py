"""Importing anything of the archive makes `archive://` known to fsspec; its filesystem is imported when a URL asks for it."""

import fsspec

PROTOCOL = "archive"

fsspec.register_implementation(PROTOCOL, "infra.archive.filesystem.ArchiveFileSystem")
