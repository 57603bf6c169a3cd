"""The report's style sheet; in the file itself, since a report must be one file. Light and dark, by the reader's own choice."""

STYLE = """
:root {
  --ink: #1b1f24; --dim: #667085; --line: #e4e7ec; --ground: #ffffff; --raised: #f8f9fb;
  --out: #2f7d5b; --held: #5c9b80; --reject: #9aa4b2; --blank: #c5ccd6; --copies: #b7a7d6; --exact: #8f7cc3; --fuzzy: #6a55a8;
  --contaminated: #c2453d; --language: #d98e2b; --quality: #c9b037; --reason: #ffd9a8; --shared: #e6f4ec; --only: #fbd9dc;
  --exam: #4aa3c7; --emptied: #d17fb0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e8ec; --dim: #98a2b3; --line: #2c333d; --ground: #14171b; --raised: #1b2026;
    --out: #4fae84; --held: #2f6e54; --reject: #5d6877; --blank: #3c4552; --copies: #5a4d7c; --exact: #7564ad; --fuzzy: #9583d8;
    --contaminated: #e0655c; --language: #d98e2b; --quality: #b8a032; --reason: #6b4a17; --shared: #1d3b2e; --only: #4f2227;
    --exam: #3b87a8; --emptied: #a85a8a;
  }
}
* { box-sizing: border-box; }
h2, .sample > header span:last-child { min-width: 0; overflow-wrap: anywhere; }
body { margin: 0 auto; max-width: 1180px; padding: 32px 24px 80px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 48px 0 12px; padding-top: 16px; border-top: 1px solid var(--line); }
h3 { font-size: 13px; margin: 28px 0 10px; color: var(--dim); text-transform: uppercase; letter-spacing: 0.06em; }
p { margin: 0 0 12px; } .dim { color: var(--dim); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0 8px; }
.card { background: var(--raised); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .card span { color: var(--dim); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 14px 6px 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; font-size: 13px; }
th:first-child, td:first-child { text-align: left; }
tr.total td { font-weight: 600; border-bottom: none; }
.wide td:last-child, .wide th:last-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere; padding-right: 0; color: var(--dim); }
.bar { display: flex; height: 14px; border-radius: 4px; overflow: hidden; background: var(--raised); min-width: 80px; }
.bar i { display: block; min-width: 1px; }
.steps { display: grid; grid-template-columns: max-content 1fr max-content; gap: 6px 14px; align-items: center;
  font-variant-numeric: tabular-nums; }
.steps > :nth-child(3n) { text-align: right; }
.steps .track { background: var(--raised); border-radius: 4px; height: 16px; }
.steps .track i { display: block; height: 100%; border-radius: 4px; background: var(--out); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 10px 0 0; color: var(--dim); font-size: 13px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.out { background: var(--out); } .held_out { background: var(--held); } .rejected { background: var(--reject); }
.blank { background: var(--blank); } .copies { background: var(--copies); }
.held_out_duplicate { background: var(--exam); } .emptied { background: var(--emptied); }
.exact { background: var(--exact); } .fuzzy { background: var(--fuzzy); } .contaminated { background: var(--contaminated); }
.language { background: var(--language); } .quality { background: var(--quality); }
.sample { border: 1px solid var(--line); border-radius: 10px; margin: 0 0 14px; overflow: hidden; }
.sample > header { display: flex; gap: 12px; align-items: baseline; padding: 10px 16px; background: var(--raised);
  border-bottom: 1px solid var(--line); }
.tag { flex: none; color: #fff; border-radius: 5px; padding: 1px 8px; font-size: 12.5px; white-space: nowrap; }
.sides { display: grid; grid-template-columns: 1fr 1fr; } .sides > div { padding: 12px 16px; min-width: 0; }
.sides > div + div { border-left: 1px solid var(--line); } .alone { grid-template-columns: 1fr; }
.name { color: var(--dim); font-size: 12.5px; overflow-wrap: anywhere; margin-bottom: 6px; }
.passage { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate;
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono", monospace;
  max-height: 440px; overflow-y: auto; }
mark { color: inherit; border-radius: 3px; padding: 0 1px; background: none; } mark.reason { background: var(--reason); }
mark.shared { background: var(--shared); } mark.only { background: var(--only); }
@media (max-width: 760px) {
  .sides { grid-template-columns: 1fr; }
  .sides > div + div { border-left: none; border-top: 1px solid var(--line); }
}
"""
