"""What a user can touch is documented where it is defined, and the pages made from that are up to date."""
from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gatehouse import exits
from gatehouse.cli.main import cli
from gatehouse.config.config import KernelSection, documented_sections
from gatehouse.kernel.settings import KernelSettings
from gatehouse.metrics import METRICS
from gatehouse.reference import error_codes, every_command, pages
from gatehouse.serve import read_specs

ROOT = Path(__file__).parents[2]
SECTIONS = documented_sections(read_specs())
SETTINGS = [(name, field) for name, section in SECTIONS.items() for field in dataclasses.fields(section) if field.init]


@pytest.mark.parametrize(("section", "field"), SETTINGS, ids=[f"{name}.{field.name}" for name, field in SETTINGS])
def test_every_setting_says_what_it_does(section, field):
    assert len(field.metadata.get("help", "").split()) >= 3


def test_every_setting_of_the_kernel_can_be_set():
    ours = {field.name for field in dataclasses.fields(KernelSection)} - {"catalogue_url"}
    in_other_units = {"retention_hours": "retention_ms", "max_session_wait_s": "max_session_wait_ms"}
    assert {field.name for field in dataclasses.fields(KernelSettings)} == {in_other_units.get(name, name)
                                                                            for name in ours}
    assert KernelSection().for_kernel() == KernelSettings()


@pytest.mark.parametrize("code", error_codes())
def test_every_error_code_says_what_it_means(code):
    assert re.fullmatch(r"[a-z][a-z_]+", code)
    assert len(error_codes()[code].split()) >= 3


def test_every_error_code_belongs_to_one_error():
    from gatehouse.kernel import errors
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.KernelError)]
    assert len({kind.code for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_says_what_it_counts(name):
    assert re.fullmatch(r"gatehouse_[a-z_]+", name)
    assert not name.endswith("_total"), "the page adds it"
    assert len(METRICS[name].help.split()) >= 3


@pytest.mark.parametrize(("name", "command"), [*every_command(cli)])
def test_every_command_and_option_says_what_it_does(name, command):
    assert command.help
    assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


def test_every_exit_code_has_a_meaning():
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert codes == set(exits.MEANING)


@pytest.mark.parametrize(("name", "text"), pages(read_specs()).items())
def test_the_generated_pages_are_up_to_date(name, text):
    assert (ROOT / "docs" / name).read_text() == text, "run `make docs`"


def test_the_pages_are_written_by_the_command(tmp_path):
    subprocess.run([sys.executable, "-m", "gatehouse.reference", str(tmp_path)], check=True, cwd=ROOT)
    assert {file.name for file in tmp_path.iterdir()} == set(pages(read_specs()))


def test_every_link_between_pages_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


DECISIONS = {int(number): text for page in sorted((ROOT / "docs/decisions").glob("*.md"))
             for number, text in re.findall(r"(?ms)^## (\d+)\. (.*?)(?=^## |\Z)", page.read_text())}
PRODUCT = ("kernel", "gateways", "transactions", "gatehouse", "spark", "relay", "tracing")


def test_decisions_are_numbered_once_each():
    """A number names one decision, on one page, and the list of all has it."""
    numbers = [int(number) for page in (ROOT / "docs/decisions").glob("*.md")
               for number in re.findall(r"(?m)^## (\d+)\. ", page.read_text())]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert len(numbers) > 90, "the pattern finds them"
    contents = (ROOT / "docs/decisions/README.md").read_text()
    pages = re.findall(r"(?m)^\| \[.*?\]\((.*?)\)", contents)
    assert len(pages) == len(set(pages)), "each page has one row"
    listed = re.findall(r"(?m)^- (\d+)\. ", contents)
    assert [int(number) for number in listed] == sorted(numbers)


def test_decisions_say_where_they_live_and_the_code_names_no_other():
    """Who reads a decision finds the code, and who reads the code finds the decision."""
    for number, text in DECISIONS.items():
        assert "*Where:*" in text, number
        where = text[text.index("*Where:*"):]
        files = re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", where)
        assert files, number
        for file in files:
            assert (ROOT / file).exists(), f"decision {number} names {file}"
    for folder in PRODUCT:
        for file in (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.js")):
            for number in re.findall(r"(?:#|//).*\bdecision (\d+)", file.read_text()):
                assert int(number) in DECISIONS, f"{file} names decision {number}"
