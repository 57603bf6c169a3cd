"""`seaway dash`: the board of a profile's evaluations, on loopback."""

import socket

from rich.console import Console

from assets.partitions import PROFILE
from orchestration.errors import CommandError


class MissingExtraError(CommandError):
    """A package of an extra is not installed."""


def serve_dash(console: Console, port: int) -> None:
    """Serve the board until it is interrupted.

    Args:
        port: on 127.0.0.1; 0 takes a free one.

    Raises:
        MissingExtraError: the extra with the web packages is not installed.
        OSError: the port is taken.
    """
    try:
        import jinja2  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingExtraError(f"{error.name} is not installed: pip install 'seaway[serve]'") from error
    from infra.dash.pages import Dash
    from orchestration.dash_source import ArchivedResults  # reads Parquet: no other command waits for that import

    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise OSError(f"port {port} on 127.0.0.1 can't be used: {error.strerror}; choose another with --port") from None
    source = ArchivedResults(PROFILE.storage.root, PROFILE.storage.catalog)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    console.print(f"profile {PROFILE.name}, results in {PROFILE.storage.root}\nopen {url}  (Ctrl-C ends it)", soft_wrap=True)
    application = Dash(source, PROFILE.storage.root).application()
    uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=2)).run(sockets=[listener])
