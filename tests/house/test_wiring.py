"""The kernel is wired by constructors: nothing is filled in from outside, and no hook waits to be set."""
from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.parsed import tree_of
from tests.house.test_layers import CONTRACTS, ROOT

PRODUCT = ("gatehouse", "gateways", "kernel", "transactions")
FILES = sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))
KERNEL = [file for file in FILES if file.relative_to(ROOT).parts[0] == "kernel"]
ORDER = next(contract["layers"] for contract in CONTRACTS if contract["name"].startswith("The kernel's folders"))
RANKS = {name: rank for rank, layer in enumerate(reversed(ORDER)) for name in layer.split(" : ")}

# What the kernel's code calls plain values: they have no wires, and whoever works on them fills in their fields.
VALUES = {"answer", "backup", "builder", "connection", "each", "entry", "frame", "level", "member", "outbox",
          "pending_frame", "placement", "reader", "reference", "run", "sealed", "shared", "stretch"}


def targets(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that are assigned to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            found = [node.target]
        else:
            continue
        for target in found:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(part, ast.Attribute):
                    yield part


def made_here(tree: ast.AST) -> set[str]:
    """Names of what a function has made itself, by a call."""
    return {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets if isinstance(target, ast.Name)}


def assigned_from_outside(tree: ast.AST) -> list[str]:
    """Attributes of other objects that are assigned to, but for plain values and for what was made on the spot."""
    found = []
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            mine = {"self", "cls"} | VALUES | made_here(function)
            found += [f"{target.lineno} {ast.unparse(target)}" for target in targets(function)
                      if not isinstance(target.value, ast.Name) or target.value.id not in mine]
    return found


def test_no_part_of_the_kernel_assigns_to_another():
    found = [f"{file.relative_to(ROOT)}:{where}" for file in KERNEL
             for where in assigned_from_outside(tree_of(file))]
    assert not found


def test_an_assignment_from_outside_is_noticed():
    for text in ("self._committer.is_behind = is_behind", "checkpoints.on_done = done", "self._parts.epoch += 1",
                 "guard.look, guard.worker = look, worker"):
        assert assigned_from_outside(ast.parse(f"def f(self, checkpoints, guard):\n    {text}\n")), text
    for text in ("self._epoch += 1", "batch = Batch()\n    batch.size = 1", "placement.version = 3"):
        assert not assigned_from_outside(ast.parse(f"def f(self, placement):\n    {text}\n")), text


COUNTS = {"counts", "flow", "totals",           # what is counted of others
          "row", "of", "source"}                # of an answer that is being made; how much one consumer holds
LIBRARIES = {"gatehouse/demo/orders/mqtt_link.py", "gatehouse/demo/page.py"}
"""Files that set attributes of a library's objects, as the library asks for."""


def reached_through(tree: ast.AST) -> list[str]:
    """Attributes of a part of something that are assigned to: `self.part.attribute = ...`, `a.b.c += 1`."""
    return [f"{target.lineno} {ast.unparse(target)}" for target in targets(tree)
            if isinstance(target.value, ast.Attribute) and target.value.attr.lstrip("_") not in COUNTS]


def test_nobody_fills_in_what_belongs_to_a_part_of_his() -> None:
    assert not [f"{file.relative_to(ROOT)}:{where}" for file in FILES
                if file.relative_to(ROOT).as_posix() not in LIBRARIES
                for where in reached_through(tree_of(file))]
    for text in ("self._inbox.slow_down = self._slow_down", "self._session.user = name", "a.b.c += 1",
                 "self._x, self._part.y = 1, 2"):
        assert reached_through(ast.parse(text)), text
    for text in ("self._inbox = Inbox()", "self.flow.messages_out += 1", "answer.size = 1"):
        assert not reached_through(ast.parse(text)), text


def hooks(tree: ast.AST) -> list[int]:
    """Lines at which something is bound to a function that does nothing."""
    found = []
    for node in ast.walk(tree):
        values = [node.value] if isinstance(node, (ast.Assign, ast.AnnAssign)) else \
            [*node.defaults, *node.kw_defaults] if isinstance(node, ast.arguments) else []
        found += [value.lineno for value in values if isinstance(value, ast.Lambda)
                  and isinstance(value.body, ast.Constant) and value.body.value is None]
    return found


def test_no_hook_waits_to_be_set():
    assert not [f"{file.relative_to(ROOT)}:{line}" for file in FILES for line in hooks(tree_of(file))]
    assert hooks(ast.parse("self.on_done = lambda: None")) and hooks(ast.parse("def f(on_done=lambda: None): ..."))


def test_type_checking_imports_go_down_too():
    """The contract of the kernel's folders is about what is imported at run time; this is about all of it."""
    found = []
    for file in KERNEL:
        mine = file.relative_to(ROOT / "kernel").parts[0].removesuffix(".py")
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gatehouse.kernel."):
                other = node.module.split(".")[2]
                if RANKS[other] > RANKS.get(mine, len(RANKS)):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} imports {node.module}")
    assert not found


def test_every_folder_of_the_kernel_has_its_place():
    folders = {path.name.removesuffix(".py") for path in (ROOT / "kernel").iterdir()
               if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert folders - {"__init__"} == set(RANKS)


def arithmetic_on_positions(tree: ast.AST) -> list[int]:
    """Lines that add to a position, or subtract from one."""
    names = {"position", "kept_end"}
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.BinOp)
            and isinstance(node.op, (ast.Add, ast.Sub)) for side in (node.left, node.right)
            if isinstance(side, ast.Name) and side.id in names or isinstance(side, ast.Attribute)
            and (side.attr in names or ast.unparse(side) in ("segment.base", "positions.main", "positions.kept"))]


def test_positions_are_computed_with_in_the_logs_files_alone():
    """Everywhere else they are opaque, and whether something is kept is asked of a frame or a segment."""
    elsewhere = {"log", "errors.py"}               # an error's position is that of a character
    files = [file for file in KERNEL if file.relative_to(ROOT).parts[1] not in elsewhere]
    assert not [f"{file.relative_to(ROOT)}:{line}" for file in files
                for line in arithmetic_on_positions(tree_of(file))]
    assert not [file for file in FILES if file.parent != ROOT / "kernel" / "log"
                and {"KEPT_BASE", "MAX_POSITION"} & {node.id for node in ast.walk(tree_of(file))
                                                     if isinstance(node, ast.Name)}]
    for text in ("segment.base + 1", "end - position", "frame.position + at"):
        assert arithmetic_on_positions(ast.parse(text)), text
