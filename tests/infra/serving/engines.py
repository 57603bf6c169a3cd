"""Tiny real engines: deterministic, and each with one thing that can go wrong."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.serving.openai_api import Answer, RequestDeclined
from infra.serving.upstream import UpstreamEngine


class Echo:
    """Says the prompt back, word by word; some prompts ask for trouble."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def generate(self, body: Mapping[str, Any], say: Callable[[Sequence[str]], None]) -> Answer:
        prompt = str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"])
        if prompt.startswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt.startswith("raise"):
            raise RuntimeError("the engine does not like this prompt")
        if prompt.startswith("too long"):
            raise RequestDeclined("the prompt has 9 tokens and the context is 8", "prompt")
        words = prompt.split(" ")[: body["max_tokens"] or 100]
        for number, word in enumerate(words):
            if prompt.startswith("slow"):
                time.sleep(0.2)
            say([word if number == 0 else f" {word}"])
        whole = len(words) == len(prompt.split(" "))
        return Answer(text=" ".join(words), finish_reason="stop" if whole else "length", prompt_tokens=1, completion_tokens=len(words))


def echo(slots: str = "1") -> Echo:
    return Echo(int(slots))


def upstream(slots: str = "4") -> UpstreamEngine:
    """An echo behind somebody else's server."""
    return UpstreamEngine([sys.executable, "-m", "tests.infra.serving.openai_server"], int(slots))
