"""The zip container of an Office Open XML file: its parts, within caps, and how they refer to each other."""

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping

from ops.extract.config import DocxConfig
from ops.extract.docx.errors import DocxError
from ops.extract.docx.xml_events import Handler, feed
from ops.units import MiB

ZIP_MAGIC = b"PK\x03\x04"
FREE_RATIO_BYTES = MiB  # a part smaller than this may have any ratio: it can't hurt
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # what Office wraps encrypted files into; also Word's format before 2007
ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
END_RECORD = struct.Struct("<4s4H2LH")
END_MAGIC = b"PK\x05\x06"
MAX_COMMENT_BYTES = 65_535
MAX_DIRECTORY_ENTRY_BYTES = 512  # of the central directory, on average: name and extra fields among them
# Large enough that Python 3.12.1's expat, which reads a long token anew with every chunk, stays linear in practice.
CHUNK_BYTES = MiB
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError, OverflowError, struct.error, RuntimeError)


class Package:
    """An opened file. Reads nothing but the directory until a part is asked for."""

    def __init__(self, data: bytes, limits: DocxConfig) -> None:
        """Open the container.

        Raises:
            DocxError: it is encrypted, no zip, broken, or larger inside than the limits allow.
        """
        self._limits = limits
        _check_magic(data)
        _check_directory(data, limits)
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except BROKEN as error:
            raise DocxError("broken-file", f"the zip directory can't be read: {error}") from error
        members = self._archive.infolist()
        if (total := sum(member.file_size for member in members)) > limits.max_unpacked_bytes:
            raise DocxError("bomb", f"its members declare {total} bytes; at most {limits.max_unpacked_bytes} are unpacked")
        self._members = {_normal(member.filename): member for member in reversed(members)}  # of equal names, the first

    def __contains__(self, name: str) -> bool:
        return _normal(name) in self._members

    def has_folder(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._members)

    def chunks(self, name: str) -> Iterator[bytes]:
        """A part's bytes.

        Raises:
            DocxError: the part is missing, encrypted, broken, or larger than the limits allow.
        """
        member = self._members.get(_normal(name))
        if member is None:
            raise DocxError("broken-file", f"the part {name} is missing")
        if member.flag_bits & 1:
            raise DocxError("encrypted", f"the part {name} is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DocxError("broken-file", f"the part {name} is packed by method {member.compress_type}; OOXML knows deflate alone")
        self._check_size(name, member)
        try:
            with self._archive.open(member) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
        except BROKEN as error:
            if isinstance(error, DocxError):
                raise  # thrown by the reader of the chunks
            raise DocxError("broken-file", f"the part {name} does not unpack: {error}") from error

    def _check_size(self, name: str, member: zipfile.ZipInfo) -> None:
        size, stored = member.file_size, max(1, member.compress_size)
        if size > self._limits.max_part_bytes:
            raise DocxError("bomb", f"the part {name} has {size} bytes; at most {self._limits.max_part_bytes} are read")
        if size > FREE_RATIO_BYTES and size > self._limits.max_ratio * stored:
            raise DocxError("bomb", f"the part {name} inflates {size // stored} times; at most {self._limits.max_ratio} are allowed")

    def parse(self, name: str, handler: Handler) -> None:
        """Feed a part's XML to a handler.

        Raises:
            DocxError: see `chunks`; or the XML is not well-formed, has a document type, or is nested too deeply.
        """
        feed(self.chunks(name), name, handler, max_depth=self._limits.max_depth, max_elements=self._limits.max_elements)

    def targets(self, part: str) -> Mapping[str, str]:
        """Parts that `part` refers to ("" for the package itself), by the last word of the relationship's type."""
        folder, base = posixpath.split(part)
        name = posixpath.join(folder, "_rels", f"{base}.rels")
        if name not in self:
            return {}
        relationships = _Relationships(folder)
        self.parse(name, relationships)
        return relationships.targets


class _Relationships:
    reads = frozenset({"?:Relationship"})

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.targets: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in self.reads and attributes.get("TargetMode") != "External":
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.targets.setdefault(kind, posixpath.normpath(posixpath.join("/", self._folder, attributes.get("Target", ""))))

    def end(self, name: str) -> None:
        pass

    def text(self, data: str) -> None:
        pass


def _normal(name: str) -> str:
    """Part names are compared without regard to case (ECMA-376 part 2, 6.2.2.3); some writers use backslashes."""
    return name.replace("\\", "/").lstrip("/").lower()


def _check_magic(data: bytes) -> None:
    if data.startswith(OLE_MAGIC):
        if ENCRYPTED_STREAM in data:
            raise DocxError("encrypted", "encrypted with a password")
        raise DocxError("unsupported-media-type", "an OLE file, as Word wrote before 2007")
    if not data.startswith(b"PK"):
        raise DocxError("broken-file", f"no zip file begins with {data[:8]!r}")


def _check_directory(data: bytes, limits: DocxConfig) -> None:
    """Bound the central directory before it becomes objects. zip64 needs no place here: it begins at 65,535 members."""
    at = data.rfind(END_MAGIC, max(0, len(data) - MAX_COMMENT_BYTES - END_RECORD.size))
    if at < 0 or len(data) - at < END_RECORD.size:
        raise DocxError("broken-file", "the zip directory is missing; the file is cut off")
    *_, members, size, _, _ = END_RECORD.unpack_from(data, at)
    if members > limits.max_members or size > limits.max_members * MAX_DIRECTORY_ENTRY_BYTES:
        raise DocxError("bomb", f"{members} members in a directory of {size} bytes; at most {limits.max_members} are read")
