"""Somebody else's server, as vLLM and SGLang are started: `python -m tests.infra.serving.openai_server --host H --port P`.

It is our own proxy before an echo: a real server that speaks the API.
"""

import argparse
import asyncio

from infra.serving.pool import WorkerCommand, serve
from tests.infra.serving.served import ENGINE, LIMITS

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    options = parser.parse_args()
    asyncio.run(serve(["served"], WorkerCommand(ENGINE, ("4",)), LIMITS, workers=1, host=options.host, port=options.port))
