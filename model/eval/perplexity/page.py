"""The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from model.eval.perplexity.gap import SliceGap
from model.eval.perplexity.heat import LEVELS, Run


@dataclass(frozen=True)
class Document:
    """One document's heat map."""

    key: str
    name: str
    gap: float
    ours: float
    theirs: float
    bytes: int
    runs: Sequence[Run]
    is_whole: bool
    is_cut: bool


@dataclass(frozen=True)
class Comparison:
    """One model against the baseline.

    Attributes:
        noise: signal-to-noise by slice; None where nobody measured it.
        families: (family, slices, mean gap).
    """

    model: str
    baseline: str
    macro: float
    slices: Sequence[SliceGap]
    noise: dict[str, float | None]
    families: Sequence[tuple[str, int, float]]
    worst: Sequence[Document]


def render(title: str, comparisons: Sequence[Comparison], level: float) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page, run_of = environment.from_string(TEMPLATE), environment.from_string(RUN)
    largest = max((abs(one.gap) for found in comparisons for one in found.slices), default=0.0)

    def coloured(run: Run) -> Markup:
        return Markup(run_of.render(run=run))  # escaped by its own template

    return page.render(title=title, comparisons=comparisons, level=level, largest=largest or 1.0, levels=LEVELS, coloured=coloured)


RUN = """\
{%- if run.shade is none -%}<span class="context">{{ run.text }}</span>
{%- elif run.shade == 0 -%}{{ run.text }}
{%- else -%}<span class="{{ "w" if run.shade > 0 else "b" }}{{ run.shade | abs }}" title="{{ "%+.1f" | format(run.bits) }} bits">
{{- run.text }}</span>
{%- endif -%}"""
TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { --ink: #1d2430; --quiet: #667085; --line: #e4e7ec; --paper: #fff; --worse: 214, 69, 65; --better: 46, 110, 190; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --quiet: #98a2b3; --line: #2c3442; --paper: #12161d; --worse: 240, 98, 93; --better: 92, 156, 235; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: .95rem; margin: 1.75rem 0 .25rem; font-weight: 600; }
p { margin: .25rem 0 .75rem; max-width: 62rem; } .quiet { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--quiet); font-size: .8rem; } th:first-child, td:first-child, .left { text-align: left; }
.bar { position: relative; display: inline-block; width: 6rem; height: .8rem; vertical-align: middle; }
.bar::before { content: ""; position: absolute; left: 50%; top: -.15rem; bottom: -.15rem; border-left: 1px solid var(--quiet); }
.bar i { position: absolute; top: 0; bottom: 0; }
.worse { background: rgb(var(--worse)); } .better { background: rgb(var(--better)); }
.tag { font-size: .75rem; color: var(--quiet); border: 1px solid var(--line); border-radius: .6rem; padding: 0 .45rem; }
pre { margin: .25rem 0 0; padding: .75rem; border: 1px solid var(--line); border-radius: .4rem; overflow-x: auto; max-height: 26rem;
  font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
pre .context { color: var(--quiet); }
{% for shade in range(1, levels + 1) %}
.w{{ shade }} { background: rgba(var(--worse), {{ "%.2f" | format(shade / levels * 0.75) }}); }
.b{{ shade }} { background: rgba(var(--better), {{ "%.2f" | format(shade / levels * 0.75) }}); }
{% endfor %}
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="quiet">Bits per byte of UTF-8 text, each model with its own tokenizer. A gap is what the model pays more than the baseline:
<span class="w3">above 0 it is worse</span>, <span class="b3">below 0 better</span>. Supervised slices count their targets alone.
Intervals ({{ "%.0f" | format(level * 100) }}%) resample whole documents.</p>
{% for found in comparisons %}
<h2>{{ found.model }} against {{ found.baseline }}</h2>
<p>Unweighted mean over slices: <b>{{ "%+.4f" | format(found.macro) }}</b> bits per byte.
{% for family, count, gap in found.families %}<span class="tag">{{ family }} ({{ count }}):
{{ "%+.4f" | format(gap) }}</span> {% endfor %}</p>
<div class="wide"><table>
<thead><tr><th>slice</th><th class="left">loss</th><th class="left">fidelity</th><th>documents</th><th>bytes</th><th>{{ found.model }}</th>
<th>{{ found.baseline }}</th><th>gap</th><th></th><th>interval</th>
<th title="deviation between models over deviation between repeated runs">SNR</th></tr></thead>
<tbody>
{% for one in found.slices %}
<tr><td>{{ one.key }}</td><td class="left">{{ one.tags.loss }}</td><td class="left">{{ one.tags.fidelity }}</td>
<td>{{ "{:,}".format(one.documents) }}{% if one.cut_documents %} <span class="tag">{{ one.cut_documents }} cut</span>{% endif %}</td>
<td>{{ "{:,}".format(one.bytes) }}</td><td>{{ "%.4f" | format(one.ours) }}</td><td>{{ "%.4f" | format(one.theirs) }}</td>
<td><b>{{ "%+.4f" | format(one.gap) }}</b></td>
<td><span class="bar"><i class="{{ "worse" if one.gap > 0 else "better" }}" style="{{ "left" if one.gap > 0 else "right" }}: 50%; width:
{{- " %.1f" | format(one.gap | abs / largest * 50) }}%"></i></span></td>
<td>{% if one.interval %}{{ "%+.4f" | format(one.interval[0]) }} to {{ "%+.4f" | format(one.interval[1]) }}
{% else %}<span class="quiet">one document</span>{% endif %}</td>
<td>{% if found.noise[one.key] is none %}<span class="quiet">not measured</span>
{% else %}{{ "%.2f" | format(found.noise[one.key]) }}{% endif %}</td></tr>
{% endfor %}
</tbody></table></div>
{% for document in found.worst %}
{% if loop.first %}<h3>Where they differ most</h3>
<p class="quiet">Each byte is coloured by its own gap; point at a run to see its bits.
Grey text is context that does not count.</p>{% endif %}
<h3>{{ document.key }} · {{ document.name }} <span class="quiet">gap {{ "%+.4f" | format(document.gap) }} over
{{ "{:,}".format(document.bytes) }} bytes ({{ "%.4f" | format(document.ours) }} against {{ "%.4f" | format(document.theirs) }})</span>
{% if not document.is_whole %}<span class="tag">a part is shown</span>{% endif %}
{% if document.is_cut %} <span class="tag">the source is longer</span>{% endif %}</h3>
<pre>{% for run in document.runs %}{{ coloured(run) }}{% endfor %}</pre>
{% endfor %}
{% endfor %}
</body>
</html>
"""
