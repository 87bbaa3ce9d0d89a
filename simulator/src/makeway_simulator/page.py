"""The frame of every HTML page: one file, no network, readable in the dark too."""

import html
from collections.abc import Iterable
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2733;--paper:#fff;--soft:#e6ebf0;--cut:#d33a2c;--useful:#3a7d5d}
@media(prefers-color-scheme:dark){:root{--ink:#dfe7ef;--paper:#141a20;--soft:#2b353f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1140px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}.note{opacity:.75;font-size:.9rem}
table{border-collapse:collapse}th,td{padding:.15rem .8rem .15rem 0;text-align:left;border-bottom:1px solid var(--soft)}
td{font-variant-numeric:tabular-nums;text-align:right}
svg{overflow:visible;font-size:11px}svg text{fill:currentColor}.label{font-size:10px;opacity:.7}
.grid{stroke:var(--soft)}.line{fill:none;stroke:#2a6fb0;stroke-width:1.5}
.cut{fill:var(--cut)}.useful{fill:var(--useful)}.startup{fill:#7b8794;opacity:.8}
button,select{font:inherit;padding:.2rem .7rem}.lead{font-size:1.05rem}
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(title: str, sections: Iterable[tuple[str, str, str]], lead: str = "") -> str:
    """A whole page from (title, body, note); bodies and `lead` are HTML already, titles and notes plain text."""
    parts = [
        f"<section><h2>{html.escape(head)}</h2>{body}<p class=note>{html.escape(note)}</p></section>"
        for head, body, note in sections
    ]
    name = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><h1>{name}</h1>{lead}{''.join(parts)}</body></html>\n"
    )
