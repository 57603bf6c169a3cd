"""What a file is, by its name."""

from pathlib import PurePosixPath

OCTETS = "application/octet-stream"

_BY_SUFFIX = {
    **dict.fromkeys((".txt", ".text", ".in", ".cfg", ".ini", ".toml"), "text/plain"),
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    ".rst": "text/x-rst",
    **dict.fromkeys((".py", ".pyi"), "text/x-python"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "text/html"),
    **dict.fromkeys(
        (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".pyx", ".pxd", ".rs", ".go", ".java", ".js", ".ts", ".tsx", ".jsx", ".sh", ".sql"),
        "text/x-source",
    ),
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".docm": "application/vnd.ms-word.document.macroenabled.12",
    ".dotx": "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
    ".dotm": "application/vnd.ms-word.template.macroenabled.12",
    ".doc": "application/msword",
}


def media_type_of(name: str) -> str:
    """The media type for a file name; a name without a suffix (README, METADATA) is text until its bytes disagree."""
    suffix = PurePosixPath(name).suffix.lower()
    return _BY_SUFFIX.get(suffix, OCTETS) if suffix else "text/plain"
