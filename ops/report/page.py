"""The report as one HTML file: no script, nothing loaded, the same bytes for the same documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ops.attrition import Outcome
from ops.report.funnel import SourceFunnel, spoken, totals
from ops.report.markup import Markup, element, joined, text
from ops.report.passages import Passage
from ops.report.samples import Beside, Sample
from ops.report.style import STYLE

# Escaping is what protects the reader; a browser that also refuses every script and request protects against our mistakes.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
ORDER = (*(outcome for outcome in Outcome if outcome is not Outcome.OUT), Outcome.OUT)


@dataclass(frozen=True)
class RejectExample:
    """A record that is no document, or a page that could not be fetched."""

    reason: str
    uri: str
    detail: str


def page_of(
    funnels: Sequence[SourceFunnel],
    samples: Sequence[Sample],
    rejects: Mapping[str, Sequence[RejectExample]],
    unfetched: Mapping[str, Sequence[RejectExample]],
) -> str:
    """The page.

    Args:
        rejects, unfetched: examples by source, beside the counts that the funnels hold.
    """
    sections = [
        _source(
            funnel,
            [sample for sample in samples if sample.source == funnel.source],
            rejects.get(funnel.source, ()),
            unfetched.get(funnel.source, ()),
        )
        for funnel in funnels
    ]
    body = joined(_head(funnels), _overview(funnels), *sections)
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", "What became of the documents"),
        Markup(f"<style>{STYLE}</style>"),
    )
    return f"<!doctype html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"


def _head(funnels: Sequence[SourceFunnel]) -> Markup:
    sums = totals(list(funnels))
    kept = sums["documents_out"] / sums["records"] if sums["records"] else 0.0
    cards = [
        (f"{sums['records']:,}", f"records of {len(funnels)} source{'' if len(funnels) == 1 else 's'}"),
        (f"{sums['distinct']:,}", "distinct documents"),
        (f"{sums['documents_out']:,}", "documents to train on"),
        (f"{sums['tokens_out']:,}", f"tokens to train on, of {sums['tokens_read']:,}"),
        (f"{kept:.1%}", "of the records are trained on"),
    ]
    return joined(
        element("h1", "What became of the documents"),
        element("p", "Every record has one outcome, and the numbers of every stage add up.", class_="dim"),
        element(
            "div", *(element("div", element("b", number), element("span", what), class_="card") for number, what in cards), class_="cards"
        ),
    )


def _overview(funnels: Sequence[SourceFunnel]) -> Markup:
    outcomes = [outcome for outcome in ORDER if any(getattr(funnel.documents, outcome.name.lower()) for funnel in funnels)]
    titles = ["source", "records", "rejected", "blank", "copies", *(spoken(outcome) for outcome in outcomes), "tokens out", ""]
    counts = [_counts(funnel, outcomes) for funnel in funnels]
    rows = [_overview_row(funnel.source, row, _bar(funnel)) for funnel, row in zip(funnels, counts, strict=True)]
    if len(funnels) > 1:
        rows.append(_overview_row("all sources", [sum(column) for column in zip(*counts, strict=True)], text(""), class_="total"))
    table = element("table", element("tr", *(element("th", title) for title in titles)), *rows)
    return joined(element("h2", "Funnel"), element("div", table, class_="scroll"), _legend(outcomes))


def _counts(funnel: SourceFunnel, outcomes: Sequence[Outcome]) -> list[int]:
    counts = [funnel.records, sum(funnel.rejected.values()), funnel.blank, funnel.copies]
    return [*counts, *(getattr(funnel.documents, outcome.name.lower()) for outcome in outcomes), funnel.tokens.out]


def _overview_row(title: str, counts: Sequence[int], bar: Markup, **attributes: str) -> Markup:
    cells = [element("td", f"{count:,}") for count in counts]
    return element("tr", element("td", title), *cells, element("td", bar, style="width: 24%"), **attributes)


def _bar(funnel: SourceFunnel) -> Markup:
    """All records of a source, by what became of them."""
    parts = [("out", funnel.documents.out), ("held_out", funnel.documents.held_out)]
    parts += [(outcome.name.lower(), getattr(funnel.documents, outcome.name.lower())) for outcome in Outcome if outcome < Outcome.HELD_OUT]
    parts += [("copies", funnel.copies), ("blank", funnel.blank), ("rejected", sum(funnel.rejected.values()))]
    total = max(funnel.records, 1)
    pieces = [
        element("i", class_=name, style=f"width: {100 * count / total:.3f}%", title=f"{name.replace('_', ' ')}: {count:,}")
        for name, count in parts
        if count
    ]
    return element("div", *pieces, class_="bar")


def _legend(outcomes: Sequence[Outcome]) -> Markup:
    names = [("out", "to train on"), *((outcome.name.lower(), spoken(outcome)) for outcome in outcomes if outcome is not Outcome.OUT)]
    names += [("copies", "copies within the source"), ("blank", "blank"), ("rejected", "rejected records")]
    return element("div", *(element("span", element("i", class_=name), what) for name, what in names), class_="legend")


def _source(
    funnel: SourceFunnel, samples: Sequence[Sample], rejects: Sequence[RejectExample], unfetched: Sequence[RejectExample]
) -> Markup:
    parts = [element("h2", funnel.source), _steps(funnel)]
    if funnel.fetch_errors:
        parts += [element("h3", "Pages that could not be fetched"), _reasons(funnel.fetch_errors, unfetched)]
    if funnel.rejected:
        parts += [element("h3", "Records that are no documents"), _reasons(funnel.rejected, rejects)]
    shown = {outcome: [sample for sample in samples if sample.outcome == outcome.name.lower()] for outcome in Outcome}
    held_out, kept = shown.pop(Outcome.HELD_OUT), shown.pop(Outcome.OUT)
    if removed := [sample for one in shown.values() for sample in one]:
        parts += [element("h3", "Removed, beside what was kept"), _meaning_of_marks(), *map(_sample, removed)]
    for title, some in (("Held out", held_out), ("Kept", kept)):
        if some:
            parts += [element("h3", title), *map(_sample, some)]
    return element("section", *parts)


def _steps(funnel: SourceFunnel) -> Markup:
    rows: list[Markup] = []
    for title, count in funnel.steps:
        width = 100 * count / max(funnel.steps[0][1], 1)
        track = element("div", element("i", style=f"width: {width:.3f}%"), class_="track")
        rows += [element("span", title), track, element("span", f"{count:,} ({width:.1f} %)")]
    return element("div", *rows, class_="steps")


def _reasons(counts: Mapping[str, int], examples: Sequence[RejectExample]) -> Markup:
    rows = []
    for reason, count in counts.items():
        named = [": ".join(part for part in (one.uri, one.detail) if part) for one in examples if one.reason == reason]
        rows.append(element("tr", element("td", reason), element("td", f"{count:,}"), element("td", "; ".join(named))))
    head = element("tr", *(element("th", title) for title in ("reason", "records", "for example")))
    return element("div", element("table", head, *rows, class_="wide"), class_="scroll")


def _meaning_of_marks() -> Markup:
    meanings = (("reason", "why it was removed"), ("shared", "stands in both texts"), ("only", "stands in this one alone"))
    return element("p", *(element("span", element("mark", what, class_=kind), " ") for kind, what in meanings), class_="dim")


def _sample(sample: Sample) -> Markup:
    word = spoken(Outcome[sample.outcome.upper()])
    header = element("header", element("span", word, class_=f"tag {sample.outcome}"), element("span", sample.reason))
    side = _side("", sample.source, sample.id, sample.url, sample.passage)
    if sample.beside is None:
        return element("article", header, element("div", side, class_="sides alone"), class_="sample")
    return element("article", header, element("div", side, _beside(sample.beside), class_="sides"), class_="sample")


def _beside(beside: Beside) -> Markup:
    return _side(beside.title, beside.source, beside.id, beside.url, beside.passage)


def _side(title: str, source: str, id: str, url: str, passage: Passage) -> Markup:
    name = " · ".join(part for part in (title, url, source, id[:12]) if part)
    return element("div", element("div", name, class_="name"), _passage(passage))


def _passage(passage: Passage) -> Markup:
    pieces: list[Markup] = [text("… ")] if passage.offset else []
    at = 0
    for mark in passage.marks:
        pieces += [text(passage.text[at : mark.start]), element("mark", passage.text[mark.start : mark.end], class_=mark.kind)]
        at = mark.end
    pieces.append(text(passage.text[at:]))
    left = passage.chars - passage.offset - len(passage.text)
    if left:
        pieces.append(element("span", f" … {left:,} more characters", class_="dim"))
    return element("div", *pieces, class_="passage", dir="auto")
