"""Errors, exit codes and broken pipes."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from engine.core.options import OPTION_SPECS
from tests.engine.nano import nano, nano_with

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "x.gguf", "--tempp", "0"], ["no option --tempp", "Did you mean --temp?"]),
        (["plan", "x.gguf", "--nglayers", "0"], ["no option --nglayers", "--n-gpu-layers"]),
        (["plam", "x.gguf"], ["no command plam", "Did you mean plan?"]),
        (["zzz"], ["no command zzz", "python -m engine --help"]),
        (["plan"], ["required: MODEL", "python -m engine plan --help"]),
        (["plan", "x.gguf", "y.gguf"], ["y.gguf is one word too many"]),
        (["plan", "x.gguf", "-ngl", "many"], ["-ngl cannot be many.", "number, all or auto."]),
        (["plan", "x.gguf", "-fa", "maybe"], ["-fa cannot be maybe.", "one of on, off, auto"]),
        (["plan", "-fa", "x.gguf", "y.gguf"], ["y.gguf is one word too many"]),
        (["plan", "x.gguf", "-dev", ","], ["-dev cannot be ,"]),
        (["plan", "x.gguf", "-dev", ""], ["-dev cannot be empty"]),
        (["run", "x.gguf", "-p", "-n", "5"], ["-p needs a value."]),
        (["run", "x.gguf", "-p", "a", "--trace", ""], ["--trace needs the name of a file"]),
        (["trace", "x.gguf", "-p", "a", "-o", "-"], ["-o needs the name of a file"]),
        (["score", "x.gguf", "-p", "a", "--tokens", "1,,2"], ["--tokens cannot be 1,,2"]),
        (["plan", "x.gguf", "-c", "-5"], ["-c cannot be -5. It must be at least 0."]),
        (["plan", "x.gguf", "-ngl"], ["-ngl needs a value."]),
        (["plan", "x.gguf", "--json=1"], ["--json ignored explicit argument '1'."]),
        (["run", "x.gguf", "-p", "a", "-n", "x"], ["-n cannot be x"]),
        (["score", "x.gguf", "-p", "a", "--tokens", "1,b"], ["--tokens cannot be 1,b"]),
        (["plan", "/nowhere.gguf"], ["nowhere.gguf"]),
        (["fetch", "llama"], ["invalid choice"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_in_words_and_as_json(cli, words, said):
    plain, as_json = cli(*words), cli(*words, "--json")

    assert (plain.code, plain.out) == (1, "")
    assert all(text in plain.err for text in said)
    assert as_json.code == 1
    assert as_json.json["error"]["title"] == plain.err.splitlines()[0]
    assert set(as_json.json["error"]) == {"title", "sentence", "hint", "details"}


def test_without_a_command_it_says_that_it_needs_one(cli):
    done = cli()

    assert done.code == 1
    assert "required: COMMAND" in done.err


def test_memory_that_runs_out_is_said_in_words(cli, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("engine.cli.plan.planned", fail)

    done = cli("plan", nano(), "--json")

    assert done.code == 1
    assert "-c" in done.json["error"]["hint"]


def test_ctrl_c_outside_a_run_says_stopped(cli, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.cli.plan.planned", interrupt)

    done = cli("plan", nano())

    assert (done.code, done.err) == (130, "Stopped.\n")


def test_every_command_explains_itself(capsys):
    from engine.cli.main import main, make_parser

    _, commands = make_parser()
    for name in commands:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])

        assert ended.value.code == 0
        assert name in capsys.readouterr().out


def engine(*words: object, **kwargs) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine", *map(str, words)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize("words", [["plan", "--json"], ["plan"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_reason_for_words(words):
    with engine(*words, nano()) as process:
        process.stdout.close()
        err = process.stderr.read()

    assert err == ""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [["plan"], ["plan", "--json"], ["run", "-p", "a", "-n", "2", "--devices", "cpu", "-c", "256"]],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_said(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "engine", words[0], nano(), *words[1:]],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (
        1,
        "Cannot write the output: No space left on device.\n",
    )


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_closed_output_is_said():
    command = f'"{sys.executable}" -m engine plan "{nano()}" >&-'

    done = subprocess.run(
        command, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
    )

    said = "Cannot write the output: standard output is closed.\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_ctrl_c_while_the_program_is_imported_says_stopped(monkeypatch, capsys):
    from engine import __main__, paths

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "configure_environment", interrupt)

    assert __main__.run() == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_the_version_is_that_of_the_project():
    with engine("--version") as process:
        out, _ = process.communicate()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert out == f"Splitscope {project['version']}\n"


def test_help_says_the_default_of_every_option(capsys):
    from engine.cli.main import main

    with pytest.raises(SystemExit):
        main(["plan", "--help"])

    text = " ".join(capsys.readouterr().out.split())
    for words in ("auto, for demo 15", "default: 2048", "default: 0.95", "default: off"):
        assert words in text
    # Two more: --batch and --backends.
    assert text.count("(default: ") == len(OPTION_SPECS) + 2


def test_a_terminal_without_unicode_gets_escapes_and_no_traceback(tmp_path):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    path = nano_with(tmp_path)

    with engine("plan", path, "-ngl", 2, env=environment) as process:
        out, err = process.communicate()

    assert (process.returncode, err) == (0, "")
    assert "\\xb7" in out


def test_json_is_one_document_on_a_line_of_its_own():
    with engine("devices", "--json") as process:
        out, _ = process.communicate()

    assert out.count("\n") == 1
    assert json.loads(out)["devices"][-1]["name"] == "CPU"
