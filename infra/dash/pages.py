"""The board as a web application: pages made on the server, no script, nothing from elsewhere.

Everything shown may come from a model, a crawl or a stranger's file, so templates escape all of it, a policy forbids scripts, and
texts can't change the direction of what stands around them.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from infra.dash import shown
from infra.dash.board import GATE, PANEL, Filters, board_of
from infra.dash.results import Key, Result, Source, Unavailable, Verdict

SAMPLES_PER_PAGE = 50
TRAJECTORY_BYTES = 1 << 20  # shown of one; a page is for a person, the whole blob for a program
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "ungraded")
POLICY = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class _Problem(Exception):  # noqa: N818 - a page of its own
    """A request that can't be answered as it was meant."""

    def __init__(self, status: int, title: str, what: str) -> None:
        self.status, self.title, self.what = status, title, what
        super().__init__(what)


class Dash:
    """The pages over one source.

    Args:
        place: where the results lie, for people.
    """

    def __init__(self, source: Source, place: str) -> None:
        self._source, self._place = source, place
        self._environment = Environment(
            loader=PackageLoader("infra.dash"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= shown.FILTERS
        self._environment.globals |= {"place": place, "gate": GATE, "panel": PANEL, "excerpt": shown.excerpt}

    def application(self) -> Starlette:
        """The ASGI application."""
        pages: dict[str, Callable[[Request], str]] = {
            "/": self._board,
            "/run": self._run,
            "/sample": self._sample,
            "/predictions": self._predictions,
        }
        routes = [Route(path, partial(self._answer, page)) for path, page in pages.items()]
        return Starlette(routes=[*routes, Route("/dash.css", _style), Route("/health", _health)], exception_handlers={404: self._missing})

    async def _answer(self, page: Callable[[Request], str], request: Request) -> Response:
        """A page, made in a thread since it may read storage; or what stands in its way."""
        try:
            return HTMLResponse(await run_in_threadpool(page, request), headers=HEADERS)
        except _Problem as problem:
            return self._problem(problem.status, problem.title, problem.what)
        except Unavailable as unavailable:
            return self._problem(503, "Not available now", str(unavailable))

    async def _missing(self, request: Request, error: Exception) -> Response:
        return self._problem(404, "No such page", f"Nothing is at {request.url.path}.")

    def _problem(self, status: int, title: str, what: str) -> Response:
        return HTMLResponse(self._render("problem.html", here="", title=title, what=what), status, headers=HEADERS)

    def _render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)

    def _board(self, request: Request) -> str:
        filters = _filters_of(request)
        results = self._source.results()
        board = board_of(results, filters, self._source.mean)
        return self._render("board.html", here="board", board=board, filters=filters, total=len(results))

    def _run(self, request: Request) -> str:
        result = self._result(request)
        verdict = request.query_params.get("verdict") or None
        if verdict not in (None, *VERDICTS):
            raise _Problem(400, "Not a verdict", f"verdict is {verdict!r}; choose one of {', '.join(VERDICTS)}.")
        page = None
        if result.has_samples:
            page = self._page(result, _key_of(request, "after"), verdict)
        history = [one for one in self._source.results() if (one.model, one.benchmark) == (result.model, result.benchmark)]
        history.sort(key=lambda one: (one.at, one.run), reverse=True)
        return self._render(
            "run.html",
            here="board",
            result=result,
            page=page,
            verdict=verdict,
            verdicts=VERDICTS,
            history=history,
            after=request.query_params.get("after"),
        )

    def _page(self, result: Result, after: Key | None, verdict: Verdict | None) -> Any:
        try:
            return self._source.page(result, after=after, limit=SAMPLES_PER_PAGE, verdict=verdict)
        except ValueError as error:
            raise _Problem(400, "Not a sample's key", str(error)) from error

    def _sample(self, request: Request) -> str:
        result, key = self._result(request), _key_of(request, "key")
        if key is None:
            raise _Problem(400, "No sample is named", "Open one from its run's page.")
        try:
            sample = self._source.sample(result, key)
        except ValueError as error:
            raise _Problem(400, "Not a sample's key", str(error)) from error
        if sample is None:
            raise _Problem(404, "No such sample", f"{result.run} has no sample {' / '.join(map(str, key))}.")
        trajectory, missing = self._trajectory(result, sample.trajectory)
        whole = "whole" in request.query_params
        return self._render(
            "sample.html", here="board", result=result, sample=sample, whole=whole, trajectory=trajectory, trajectory_missing=missing
        )

    def _trajectory(self, result: Result, uri: str | None) -> tuple[str | None, str | None]:
        """The text of a trajectory, and why there is none: the rest of the sample can be read without it."""
        if uri is None:
            return None, None
        try:
            return self._source.trajectory(result, uri, TRAJECTORY_BYTES), None
        except Unavailable as unavailable:
            return None, str(unavailable)

    def _predictions(self, request: Request) -> str:
        return self._render("predictions.html", here="predictions", predictions=self._source.predictions())

    def _result(self, request: Request) -> Result:
        run = request.query_params.get("run", "")
        found = next((result for result in self._source.results() if result.run == run), None)
        if found is None:
            raise _Problem(404, "No such run", f"No result has the id {run!r}; it may have been removed.")
        return found


def _filters_of(request: Request) -> Filters:
    asked = request.query_params
    return Filters(
        benchmarks=tuple(dict.fromkeys(asked.getlist("benchmark"))),
        model=asked.get("model", ""),
        cohort=asked.get("cohort") or None,
        least_scored=_number(asked, "scored", 1.0),
        least_benchmarks=int(_number(asked, "benchmarks", 10_000)),
        sort=asked.get("sort") or None,
    )


def _number(asked: Mapping[str, str], name: str, most: float) -> float:
    try:
        value = float(asked.get(name) or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise _Problem(400, "Not a number that fits", f"{name} is {asked.get(name)!r}; give a number from 0 to {most:g}.")
    return value


def _key_of(request: Request, name: str) -> Key | None:
    """A key in the query, as a JSON list."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(part, str | int) for part in found):
        raise _Problem(400, "Not a sample's key", f"{name} must be a JSON list of texts and whole numbers.")
    return tuple(found)


async def _style(request: Request) -> Response:
    return Response(files("infra.dash").joinpath("dash.css").read_bytes(), media_type="text/css", headers={"Cache-Control": "max-age=60"})


async def _health(request: Request) -> Response:
    return PlainTextResponse("ok")
