"""Style and script of the report page. The page reads the same without the script."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --shade: #f6f8fa; --good: #1a7f37; --bad: #cf222e; --mild: #8a5a00; --link: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --soft: #9aa4af;
  --line: #30363d; --shade: #161b22; --good: #4ac26b; --bad: #ff7b72; --mild: #d4a72c;
  --link: #79b8ff; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto;
  padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .2rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
a { color: var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: .4rem; }
.verdict { font-size: 1.1rem; font-weight: 600; margin: .2rem 0 .8rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .mild { color: var(--mild); }
.muted, .note { color: var(--soft); }
nav ul, ul.tiles { display: flex; flex-wrap: wrap; gap: .5rem .9rem; padding: 0;
  list-style: none; }
ul.tiles li { border: 1px solid var(--line); border-radius: .5rem; padding: .3rem .9rem; }
ul.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; margin: .6rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } .scroll + .scroll { margin-top: 1.6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 4.5rem; } td:first-child { min-width: 11rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody tr:hover { background: var(--shade); }
code { font: .88em/1.5 ui-monospace, monospace; }
small { color: var(--soft); }
details { margin: .5rem 0; } summary { cursor: pointer; padding: .2rem 0; }
.search { display: none; margin: 0 0 .6rem; } .scripted .search { display: block; }
input { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line);
  border-radius: .4rem; padding: .35rem .6rem; width: min(22rem, 100%); }
output { color: var(--soft); margin-left: .5rem; }
@media (max-width: 44rem) {
  output { display: block; margin: .2rem 0 0; }
  thead { position: absolute; left: -99rem; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td, td:first-child { display: block; border: 0; padding: .1rem 0; min-width: 0; }
  td.number { text-align: left; }
  td:empty, tr[hidden] { display: none; }
  td::before { content: attr(data-label) ": "; color: var(--soft); }
}
@media print {
  :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --line: #bbb;
    --good: #1a7f37; --bad: #cf222e; --mild: #8a5a00; --link: #0550ae; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav, .search, .skip, .scripted .search { display: none; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } .scroll { overflow: visible; }
}
"""

SCRIPT = """
document.documentElement.classList.add("scripted");
for (const box of document.querySelectorAll("input[data-table]")) {
  const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const told = box.closest("p").querySelector("output");
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(" ").filter(word => word);
    let shown = 0;
    rows.forEach((row, place) => {
      const hit = words.every(word => texts[place].includes(word));
      row.hidden = !hit;
      shown += hit;
    });
    told.textContent = `${shown} of ${rows.length} rows`;
  });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
"""
