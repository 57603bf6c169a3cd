"""A word list on this machine, for a rule that can't be published without one."""

import hashlib
from functools import lru_cache
from pathlib import Path

from ops.hashing.rule_phrases import Phrases, phrases_of
from ops.rules.config import WordList


class WordListError(RuntimeError):
    """A word list is missing, is not the one of the config, or lists nothing."""


def load_phrases(words: WordList) -> Phrases:
    """The list, read once in a process.

    Raises:
        WordListError: says which file, and what to do.
    """
    return _read(words.path, words.sha256)


@lru_cache(maxsize=4)
def _read(path: str, sha256: str) -> Phrases:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise WordListError(f"{path}: can't read the word list ({error.strerror}); put it there, or set bad_words to null") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise WordListError(
            f"{path} has SHA-256 {found}, the config's is {sha256}; bring that list back, or set sha256 to judge by this one"
        )
    listed = [line.strip() for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    if not listed:
        raise WordListError(f"{path} lists no words; name a file with one word or phrase a line")
    return phrases_of(listed)
