"""A search for dead links in the built site."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ID = re.compile(r'\sid="([^"]+)"')
_LINK = re.compile(r'<(?:a|img|link|script|source)\b[^>]*?\s(?:href|src)="([^"]*)"')


def dead_links(site: Path) -> list[str]:
    """Return each link to a file that does not exist, or to an anchor that its page does not have.

    Links to other hosts are not followed.

    Args:
        site: the directory with ``index.html``.
    """
    site = site.resolve()
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: {html.unescape(found) for found in _ID.findall(text)} for page, text in texts.items()}
    dead = []
    for page, text in sorted(texts.items()):
        for link in sorted(set(_LINK.findall(text))):
            address = urlsplit(html.unescape(link))
            if address.scheme or address.netloc:
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            anchor = unquote(address.fragment)
            if not target.is_file():
                dead.append(f"{page.relative_to(site)}: {link}: there is no such file")
            elif anchor and anchor not in anchors.get(target, ()):
                dead.append(f"{page.relative_to(site)}: {link}: the page has no such anchor")
    return dead
