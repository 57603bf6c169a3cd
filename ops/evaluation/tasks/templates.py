"""Jinja templates of tasks, with lm-eval's settings, in a sandbox: a task file is data, and its templates reach nothing but columns."""

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateError(ValueError):
    """A template that is none, or that can't be filled in from an item."""


def require_template(template: str) -> None:
    """Raises TemplateError: it is no template, or uses a filter that there is not."""
    try:
        _environment.from_string(template)
    except TemplateSyntaxError as error:
        raise TemplateError((error.message or "it can't be read").rstrip(".")) from None


def filled_in(template: str, document: Mapping[str, Any]) -> str:
    """The template over all columns.

    Raises:
        TemplateError: a column is missing, or what the template does with one can't be done.
    """
    try:
        return _environment.from_string(template).render(**document)
    except Exception as error:  # a template raises whatever Python does for what it writes
        raise TemplateError(str(error).rstrip(".")) from None


def columns_of(template: str, columns: frozenset[str]) -> frozenset[str]:
    """The columns that a template, or a column's name, reads. One word that could be a name is taken for one."""
    if template in columns or template.isidentifier():
        return frozenset({template})
    return frozenset(meta.find_undeclared_variables(_environment.parse(template)))


def _regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    return re.sub(pattern, replacement, text, count=count)


_environment = ImmutableSandboxedEnvironment(autoescape=False, undefined=StrictUndefined, keep_trailing_newline=True)
_environment.filters["regex_replace"] = _regex_replace
