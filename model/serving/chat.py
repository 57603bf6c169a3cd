"""How a conversation becomes a prompt. The models here are trained on documents and know no marks of turns, so turns are
paragraphs that any reader of text understands:

    Answer in one sentence.

    User: What is a tide?

    Assistant:

The answer ends where the next turn would begin.
"""

from collections.abc import Mapping, Sequence

NAMES = {"user": "User", "assistant": "Assistant"}
STOP = "\n\nUser:"


def prompt_of(messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt that a conversation is; the answer follows it after a space of its own."""
    turns = [one["content"] if one["role"] == "system" else f"{NAMES[one['role']]}: {one['content']}" for one in messages]
    return "\n\n".join([*turns, f"{NAMES['assistant']}:"])
