"""From tokens to text while it is being written: whole characters only, and nothing that may yet turn out to be a stop string."""

from collections.abc import Sequence

from tokenizers import Tokenizer

HALF = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no character yet decode to


class Text:
    """The text of one answer. What it hands out depends on the tokens alone, never on when they came.

    Args:
        stop: strings that end the text; it does not contain the one that did.
        lead: what is left out where the text begins with it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], lead: str = "") -> None:
        self.is_stopped = False
        self._lead = lead
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._longest = max(map(len, stop), default=0)
        self._pending: list[int] = []  # tokens since the last whole character
        self._text = ""
        self._told = 0

    @property
    def text(self) -> str:
        """Everything that is certain."""
        return self._text[: self._told]

    @property
    def offset(self) -> int:
        """Where the text of the next token begins, in characters."""
        return len(self._text)

    def add(self, token: int) -> str:
        """The text that became certain with this token: often a word, sometimes nothing."""
        self._pending.append(token)
        decoded = self._tokenizer.decode(self._pending)
        if decoded.endswith(HALF):
            return ""
        self._pending.clear()
        return self._grow(decoded, is_end=False)

    def end(self) -> str:
        """The rest, when no token follows."""
        if self.is_stopped:
            return ""
        decoded = self._tokenizer.decode(self._pending)
        self._pending.clear()
        return self._grow(decoded, is_end=True)

    def _grow(self, more: str, *, is_end: bool) -> str:
        if more:
            more, self._lead = more.removeprefix(self._lead), ""
        searched = max(0, len(self._text) - self._longest + 1)
        self._text += more
        found = [place for stop in self._stop if (place := self._text.find(stop, searched)) >= 0]
        if found:
            self._text, self.is_stopped = self._text[: min(found)], True
        certain = len(self._text) if is_end or self.is_stopped else len(self._text) - self._held()
        piece = self._text[self._told : certain]
        self._told = max(self._told, certain)
        return piece

    def _held(self) -> int:
        """Characters at the end that may be the beginning of a stop string."""
        longest = min(self._longest - 1, len(self._text))
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stop):
                return length
        return 0
