"""What an archive refuses, as types: a caller decides on them. Storage's own failures stay `StorageError`s."""


class ArchiveError(RuntimeError):
    """An archive refused; nothing of the refused transaction was committed."""


class ArchiveNotFoundError(ArchiveError, FileNotFoundError):
    """No archive lies there."""


class SchemaConflictError(ArchiveError):
    """Rows do not fit their table, or a declaration does not fit the one that is there.

    `column` is None where the whole table is meant.
    """

    def __init__(self, table: str, column: str | None, detail: str) -> None:
        super().__init__(f"table {table!r}{f', column {column!r}' if column else ''}: {detail}")
        self.table, self.column = table, column


class DuplicateKeyError(ArchiveError):
    """A primary key occurs twice in a transaction, or is committed already."""

    def __init__(self, table: str, key: dict[str, str | int], detail: str) -> None:
        values = ", ".join(f"{name}={value!r}" for name, value in key.items())
        super().__init__(f"table {table!r}: key ({values}) {detail}")
        self.table, self.key = table, key


class SealedError(ArchiveError):
    """The archive was sealed: nothing can be added any more."""


class FencedError(ArchiveError):
    """`collect` took this transaction for a killed one and removed what it had written; its rows must be written again."""


class SnapshotExpiredError(ArchiveError):
    """A snapshot names files that were compacted away and collected since; take a new one."""


class CorruptArchiveError(ArchiveError):
    """What lies in storage is not what the manifest says."""


class MalformedRecordError(ArchiveError):
    """A record that is no JSON object, or does not fit its schema. The message says which line and field."""
