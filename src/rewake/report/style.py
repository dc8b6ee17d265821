"""The page's style.  Colours are variables, which charts use too: a set each for light and dark."""

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1d2433; --soft: #5b6475;
  --line: #dfe3ea; --card: #f6f7f9; --good: #1a7f4b; --bad: #c0342b;
  --series-1: #2563a8; --series-2: #c96a12; --series-3: #2c8a63; --series-4: #8a4fb0;
  --series-5: #a8324a; --series-6: #5f6b7a; --series-7: #93791a; --series-8: #1f8a9c; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #14181f; --ink: #e4e8ef; --soft: #9aa5b6; --line: #2f3744; --card: #1d232d;
    --good: #4cc38a; --bad: #ff7b6e;
    --series-1: #6cb0f5; --series-2: #f2a65a; --series-3: #62c79a; --series-4: #c79aeb;
    --series-5: #f0879c; --series-6: #a7b3c4; --series-7: #d8be58; --series-8: #63c9da; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 900px; margin: 0 auto; padding: 2rem 1.25rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { margin: 0 0 .8rem; max-width: 72ch; }
.soft, .note { color: var(--soft); } .note { font-size: .875rem; margin-top: .4rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
b.good, b.bad, p.good, p.bad { font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .7rem;
  margin: 1.2rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; min-width: 0; }
.card span, .card small { display: block; color: var(--soft); font-size: .8125rem; }
.card b { display: block; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .4rem .7rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; color: var(--soft); font-weight: 600; }
td.number { white-space: nowrap; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 0; } svg { display: block; max-width: 100%; height: auto; }
.narrow { display: none; } .narrow svg { width: 100%; max-width: 520px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1.2rem;
  margin: 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; margin: 0; font: .875rem/1.5 ui-monospace, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre.drawing { white-space: pre; overflow-wrap: normal; }
footer { margin-top: 2.4rem; border-top: 1px solid var(--line); }
:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
@media screen and (max-width: 640px) {
  body { padding: 1.2rem .9rem 2rem; } h1 { font-size: 1.35rem; }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .5rem; }
  .wide { display: none; } .narrow { display: block; }
  table { width: max-content; min-width: 100%; } td, th { max-width: 15rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print {
  @page { margin: 16mm; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  section, figure, .card, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  .cards { grid-template-columns: repeat(4, 1fr); }
  table { font-size: 8pt; } th, td { padding: .2rem .35rem; overflow-wrap: anywhere; }
  td:first-child { overflow-wrap: normal; } }
"""
