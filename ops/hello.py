"""The smallest program there is: proof that a job can be sent, run, published and read back."""

from infra.artifacts.config import ProgramConfig
from infra.artifacts.program import Stats, program
from infra.artifacts.writer import Writer


class HelloConfig(ProgramConfig):
    """What to say. A doctor says something new each time, so that nothing is reused."""

    greeting: str


class HelloStats(Stats):
    """How much was said."""

    characters: int


@program(version="1")
def hello(config: HelloConfig, out: Writer) -> HelloStats:
    """Write the greeting to `hello.txt`."""
    with out.open("hello.txt") as stream:
        stream.write(config.greeting.encode())
    out.progress(1, 1, "greetings")
    return HelloStats(characters=len(config.greeting))
