"""Tiny real engines: deterministic, and each with one thing that can go wrong."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from infra.serving.openai_api import Answer


class Echo:
    """Says the prompt back, word by word; some prompts ask for trouble."""

    def generate(self, body: Mapping[str, Any], say: Callable[[str], None]) -> Answer:
        prompt = str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"])
        if prompt.startswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt.startswith("raise"):
            raise RuntimeError("the engine does not like this prompt")
        words = prompt.split(" ")[: body["max_tokens"]]
        for number, word in enumerate(words):
            if prompt.startswith("slow"):
                time.sleep(0.2)
            say(word if number == 0 else f" {word}")
        whole = len(words) == len(prompt.split(" "))
        return Answer(text=" ".join(words), finish_reason="stop" if whole else "length", prompt_tokens=1, completion_tokens=len(words))


def echo() -> Echo:
    return Echo()
