"""`programs.lock.json`: the version of every program, and the hash of the sources it was decided for.

    python -m assets.lock               # what changed since the versions were decided; exit 1 if anything did
    python -m assets.lock --write       # record new versions; refuses changed sources under an old version
    python -m assets.lock --write --same-bytes    # "sources changed, outputs did not": keep the versions

The hash is over the syntax tree of the program's module and of all `ops` and `model` modules it imports, so
comments, docstrings and formatting never move it. Config modules are left out where every field is in the recipe.
"""

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = Path(__file__).parent / "programs.lock.json"
PLANES = ("ops", "model")
FIELDS_ONLY = frozenset(  # nothing but fields, and every field is in the recipe
    {
        "ops.config",
        "ops.crawl.config",
        "ops.dataflow.config",
        "ops.decontaminate.config",
        "ops.dedup.config",
        "ops.extract.config",
        "ops.label.config",
        "ops.report.config",
    }
)

Lock = dict[str, dict[str, str]]


def locked() -> Lock:
    """The lock as it was last written."""
    return json.loads(LOCK.read_text()) if LOCK.exists() else {}


def current() -> Lock:
    """Version and source hash of every `@program` in the tree, by import path."""
    found: Lock = {}
    for plane in PLANES:
        for path in sorted((ROOT / plane).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for name, version in _programs(path):
                found[f"{module}:{name}"] = {"version": version, "sources": _hash_of(module)}
    return found


def undecided(before: Lock, now: Lock) -> list[str]:
    """Programs whose sources changed while their version did not, and programs that came or went."""
    changed = [path for path, entry in now.items() if before.get(path, entry)["sources"] != entry["sources"]]
    return sorted({*(p for p in changed if before[p]["version"] == now[p]["version"]), *(before.keys() ^ now.keys())})


def _programs(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", None) == "program":
                yield node.name, str(ast.literal_eval(decorator.keywords[0].value))


def _hash_of(module: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(_closure(module)):
        digest.update(name.encode() + b"\0" + _syntax(_path_of(name).read_text()).encode() + b"\0")
    return digest.hexdigest()[:16]


def _closure(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            named = _imports(_path_of(name).read_text())
            waiting += [imported for imported in named if imported not in FIELDS_ONLY and _path_of(imported).is_file()]
    return seen


@cache
def _imports(source: str) -> tuple[str, ...]:
    """What a module's text imports of the planes: modules, and names that may be modules. Every program asks for many again."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.split(".")[0] in PLANES)


def _path_of(module: str) -> Path:
    return (ROOT / Path(*module.split("."))).with_suffix(".py")


@cache
def _syntax(source: str) -> str:
    """A module's syntax tree as text, without its docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree)


def moved(before: Lock, now: Lock) -> list[str]:
    """Programs that are not as the lock has them, decided about or not."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def main() -> int:
    parser = argparse.ArgumentParser(description="Decide about program versions.")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--same-bytes", action="store_true", help="sources changed, equal inputs still give equal bytes")
    options = parser.parse_args()
    before, now = locked(), current()
    pending = [path for path in undecided(before, now) if path in before and path in now]
    if pending and not options.same_bytes:
        print("sources changed and nobody decided about the version of:", *pending, sep="\n  ", file=sys.stderr)
        print("raise `version` in @program, or run `python -m assets.lock --write --same-bytes`", file=sys.stderr)
        return 1
    if options.write:
        LOCK.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    if changed := moved(before, now):
        print("decided, but not recorded yet; run `python -m assets.lock --write`:", *changed, sep="\n  ", file=sys.stderr)
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
