"""Reports as a single HTML file without any external resource.

The page's Content-Security-Policy allows only its own style sheet and script, by digest, so that text from agents can
neither load nor run anything.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib import resources

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from mz_cli.reports.facts import Report
from mz_cli.reports.view import page_view


def html(report: Report) -> str:
    """Return the HTML file of a sanitised report."""
    folder = resources.files("mz_cli.reports") / "page"
    template, style, script = ((folder / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js"))
    environment = ImmutableSandboxedEnvironment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        page=page_view(report), style=Markup(style), script=Markup(script), policy=content_security_policy(style, script)
    )


def content_security_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy of the page."""
    allowed = (("style-src", style), ("script-src", script))
    directives = "; ".join(f"{name} 'sha256-{_digest(text)}'" for name, text in allowed)
    return f"default-src 'none'; {directives}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
