"""The flags that a vLLM release's own parser accepts, read from its wheel without installing or importing it.

vLLM builds its parser from dataclasses: each flag takes its type from the annotation of a field, so flags and kinds are
in the syntax tree. ``tests/engine/vllm_flags`` holds what was read, one file a release; the tests compare with it every
flag that the operator renders.

``python -m e2e.compat.vllm_flags`` reads all releases anew and writes the files.
"""

import ast
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from e2e.artifacts import cached, run_logged

RELEASES = ("0.10.0", "0.18.0", "0.23.0", "0.27.0", "0.29.0", "0.31.0", "0.32.0", "0.33.0")
"""Those with a golden command line."""
DATA = Path(__file__).parents[2] / "tests/engine/vllm_flags"

Kind = str | list[str]
"""What follows a flag: ``switch`` (nothing), ``int``, ``float``, ``json``, ``text``, or one of these choices."""

_PARSER_FILES = ("arg_utils.py", "cli_args.py")
_FRONTEND = ("BaseFrontendArgs", "FrontendArgs")
"""The dataclasses each of whose fields is a flag of the server, added in a loop."""


def sources(release: str) -> Path:
    """The folder of the modules that define the parser, from the release's wheel (300 to 430 MB, downloaded once).

    Raises BuildError.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            run_logged([*command, "--dest", place, f"vllm=={release}"], log=folder / "download.log")
            (wheel,) = Path(place).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if _defines_flags(name)])

    return cached(f"vllm-parser-{release}", [release], build, expected_seconds=20)


def _defines_flags(name: str) -> bool:
    return name.endswith(".py") and (
        name in ("vllm/engine/arg_utils.py", "vllm/config.py")
        or name.startswith("vllm/config/")
        or (name.startswith("vllm/entrypoints/") and name.endswith("/cli_args.py"))
    )


def read(folder: Path) -> dict[str, Kind]:
    """Flag and kind, sorted by flag; the positional argument has no dashes. Raises ValueError for an unread parser."""
    modules = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    if not set(_PARSER_FILES) <= {path.name for path in modules}:
        raise ValueError(f"{folder}: this release defines its flags elsewhere than in {' and '.join(_PARSER_FILES)}")
    known = _Definitions(modules.values())
    found = {f"--{name.replace('_', '-')}": known.kind(each) for name, each in known.fields(*_FRONTEND).items()}
    for path, module in modules.items():
        if path.name in _PARSER_FILES:
            for call in _calls(module, "add_argument"):
                names = [str(each.value) for each in call.args if isinstance(each, ast.Constant)]
                long = [name for name in names if name.startswith("--") or not name.startswith("-")]
                found |= dict.fromkeys(long, known.kind_of_call(call))
    return dict(sorted(found.items()))


def _calls(module: ast.Module, method: str) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node


class _Definitions:
    """The classes and the literal types of some modules, by name."""

    def __init__(self, modules: Iterable[ast.Module]) -> None:
        self._classes: dict[str, ast.ClassDef] = {}
        self._aliases: dict[str, ast.expr] = {}
        self._kwargs: dict[str, str] = {}
        for module in modules:
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    self._classes[node.name] = node
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._assigned(node.targets[0].id, node.value)

    def _assigned(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Subscript | ast.BinOp):
            self._aliases[name] = value
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "get_kwargs":
            self._kwargs[name] = ast.unparse(value.args[0])

    def fields(self, *names: str) -> dict[str, ast.expr]:
        """The annotations of these dataclasses' fields, those of their bases included."""
        found: dict[str, ast.expr] = {}
        for name in names:
            if (node := self._classes.get(name)) is not None:
                found |= self.fields(*(ast.unparse(base) for base in node.bases))
                for each in node.body:
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        found[each.target.id] = each.annotation
        return found

    def kind_of_call(self, call: ast.Call) -> Kind:
        """Of ``add_argument(...)``: its own words come after ``**kwargs["field"]``, as in Python."""
        kind: Kind = "text"
        for keyword in call.keywords:
            value = keyword.value
            if keyword.arg is None:
                kind = self._kind_of_kwargs(value)
            elif keyword.arg == "action" and ast.unparse(value) in ("'store_true'", "argparse.BooleanOptionalAction"):
                kind = "switch"
            elif keyword.arg == "type":
                kind = {"int": "int", "float": "float", "json.loads": "json"}.get(ast.unparse(value), "text")
            elif keyword.arg == "choices" and isinstance(value, ast.List):
                kind = ast.literal_eval(value)
        return kind

    def _kind_of_kwargs(self, value: ast.expr) -> Kind:
        """Of ``kwargs["field"]``, also within a dict that has more."""
        for node in ast.walk(value):
            if isinstance(node, ast.Subscript) and (name := self._kwargs.get(ast.unparse(node.value))):
                return self.kind(self.fields(name)[ast.literal_eval(node.slice)])
        return "text"

    def kind(self, annotation: ast.expr) -> Kind:
        """Of a field: the first that fits, in the order in which vLLM's ``get_kwargs`` asks."""
        types, choices = set[str](), list[str]()
        self._collect(annotation, types, choices)
        types.discard("None")
        if "bool" in types:
            return "text" if types == {"bool", "str"} else "switch"
        if choices:
            return "text" if "str" in types else choices
        for name in ("int", "float"):
            if name in types:
                return name
        return "json" if "str" not in types and any(map(self._takes_json, types)) else "text"

    def _takes_json(self, name: str) -> bool:
        """A dict, or one of the configuration's dataclasses; what is defined elsewhere is read as text."""
        node = self._classes.get(name)
        return name == "dict" or (node is not None and not any("Enum" in ast.unparse(base) for base in node.bases))

    def _collect(self, node: ast.expr, types: set[str], choices: list[str]) -> None:
        match node:
            case ast.BinOp():
                self._collect(node.left, types, choices)
                self._collect(node.right, types, choices)
            case ast.Constant(value=str(text)):
                self._collect(ast.parse(text, mode="eval").body, types, choices)
            case ast.Subscript():
                self._collect_subscript(node, types, choices)
            case _ if ast.unparse(node) in self._aliases:
                self._collect(self._aliases[ast.unparse(node)], types, choices)
            case _:
                types.add(ast.unparse(node))

    def _collect_subscript(self, node: ast.Subscript, types: set[str], choices: list[str]) -> None:
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        match ast.unparse(node.value).rsplit(".", 1)[-1]:
            case "Literal":
                for each in inner:
                    if isinstance(each, ast.Constant):
                        choices.append(str(each.value))
                    else:  # another Literal, by name
                        self._collect(each, types, choices)
            case "Optional" | "Union" | "list" | "tuple" | "set":
                for each in inner:
                    self._collect(each, types, choices)
            case "Annotated" | "SkipValidation":
                self._collect(inner[0], types, choices)
            case outer:
                types.add(outer)


def as_text(release: str, flags: Mapping[str, Kind]) -> str:
    """The data file: one flag a line, so that two releases can be compared with diff."""
    lines = ",\n".join(f"  {json.dumps(flag)}: {json.dumps(kind)}" for flag, kind in flags.items())
    return f'{{\n "release": "{release}",\n "flags": {{\n{lines}\n }}\n}}\n'


def main() -> None:
    """Read all releases and write their files."""
    DATA.mkdir(exist_ok=True)
    for release in RELEASES:
        flags = read(sources(release))
        (DATA / f"{release}.json").write_text(as_text(release, flags))
        print(f"vLLM {release}: {len(flags)} flags")


if __name__ == "__main__":
    main()
