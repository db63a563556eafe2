"""Which llama.cpp is compared with, and what is said of the choice."""

from pathlib import Path

import pytest

from tests.bench import peer_download
from tests.bench.llama_api import Llama, libraries_of
from tests.bench.peer_builds import Build, choose, lacks, used_features, wanted
from tests.bench.peer_download import PIP, PIP_REQUIREMENT, VARIANTS, fetched, library_folder
from tests.bench.wire import ChildError

PLAIN = "CPU : SSE3 = 1 | AVX2 = 1 | LLAMAFILE = 1 | OPENMP = 1 | REPACK = 1 | "
WIDE = "CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_VNNI = 1 | REPACK = 1 | "


def build(name: str, system_info: str) -> Build:
    return Build(name, Path("/nowhere"), system_info, "0.23.0 5b4ebc5")


class Shelf:
    """Has some builds, and remembers what it was asked for."""

    def __init__(self, **builds: str) -> None:
        self.builds = {name.replace("_", "-"): text for name, text in builds.items()}
        self.asked: list[str] = []

    def look(self, package: str) -> Build:
        self.asked.append(package)
        if package not in self.builds:
            raise ChildError("there is no network")
        return build(package, self.builds[package])


BOTH = {"xllamacpp": PLAIN, "node_llama_cpp": WIDE}


def test_what_llama_cpp_prints_is_read_as_names():
    text = "CPU : NEON = 1 | SVE = 1 | SVE_CNT = 32 | AVX = 0 | \n"

    assert used_features(text) == {"NEON", "SVE", "SVE_CNT=32"}


def test_a_build_that_uses_everything_is_taken_and_no_other_is_fetched():
    shelf = Shelf(**BOTH)

    peer = choose(shelf.look, frozenset({"SSE3", "AVX2"}))

    assert peer.build == build(PIP, PLAIN)
    assert peer.why == "xllamacpp uses all that this processor offers"
    assert shelf.asked == [PIP]


def test_a_build_that_lacks_something_gives_way_to_one_that_has_it():
    peer = choose(Shelf(**BOTH).look, frozenset({"AVX2", "AVX512", "AVX512_VNNI"}))

    assert peer.build == build(VARIANTS, WIDE)
    assert peer.why == (
        "xllamacpp is built without AVX512, AVX512_VNNI; "
        "node-llama-cpp uses all that this processor offers"
    )


def test_where_no_build_has_everything_the_one_that_lacks_least_is_taken():
    features = frozenset({"AVX2", "AVX512", "AMX_INT8"})

    assert choose(Shelf(**BOTH).look, features).build == build(VARIANTS, WIDE)


def test_of_equal_builds_the_first_is_taken():
    features = frozenset({"NEON"})

    assert choose(Shelf(**BOTH).look, features).build == build(PIP, PLAIN)


def test_a_build_that_lacks_something_is_better_than_none():
    peer = choose(Shelf(xllamacpp=PLAIN).look, frozenset({"AVX512"}))

    assert peer.build == build(PIP, PLAIN)
    assert peer.why.endswith("node-llama-cpp cannot be used: there is no network")


def test_without_any_build_the_reasons_are_said():
    peer = choose(Shelf().look, frozenset())

    assert peer.build is None
    assert peer.why == (
        "xllamacpp cannot be used: there is no network; "
        "node-llama-cpp cannot be used: there is no network"
    )


def test_the_wide_form_of_an_instruction_stands_for_the_narrow_one():
    assert wanted(frozenset({"AVX_VNNI", "AVX512_VNNI"})) == {"AVX512_VNNI"}
    assert wanted(frozenset({"AVX_VNNI"})) == {"AVX_VNNI"}


def test_what_a_build_uses_beyond_the_processor_is_no_lack():
    assert lacks(build(PIP, PLAIN), frozenset({"AVX2", "F16C"})) == ["F16C"]


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_libraries_stand_in_the_order_in_which_they_need_one_another(tmp_path):
    folder = touch(
        tmp_path, "libllama.v0.4.0.so", "libllama-common.so", "libggml.v0.4.0.so",
        "libggml-cpu-x64.so", "libggml-base.so",
    )  # fmt: skip

    names = [path.name for path in libraries_of(folder)]

    assert names == ["libggml-base.so", "libggml.v0.4.0.so", "libllama.v0.4.0.so"]


def test_a_python_module_with_everything_in_it_is_one_library(tmp_path):
    folder = touch(tmp_path, "xllamacpp.abi3.so")

    assert [path.name for path in libraries_of(folder)] == ["xllamacpp.abi3.so"]


def test_half_a_llama_cpp_is_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        libraries_of(touch(tmp_path, "libggml-base.so", "libggml.so"))


def test_the_folder_of_the_libraries_is_found_inside_a_package(tmp_path):
    touch(tmp_path / "package" / "dist", "other.so")
    inner = touch(tmp_path / "package" / "bins", "libggml-base.so", "libggml.so", "libllama.so")

    assert library_folder(tmp_path) == inner


def test_a_package_without_llama_cpp_says_so(tmp_path):
    with pytest.raises(ChildError, match=r"holds no llama\.cpp"):
        library_folder(tmp_path)


def test_what_was_fetched_once_is_not_fetched_again(tmp_path):
    said = []
    inner = touch(tmp_path / PIP_REQUIREMENT / "xllamacpp", "xllamacpp.abi3.so")

    assert fetched(PIP, tmp_path, said.append) == inner
    assert said == []


def test_where_there_is_no_npm_that_is_the_reason_and_nothing_half_done_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    said = []

    with pytest.raises(ChildError, match="there is no npm"):
        fetched(VARIANTS, tmp_path, said.append)

    assert list(tmp_path.iterdir()) == []
    assert said == ["fetching node-llama-cpp, a build of llama.cpp (once)"]


def test_what_a_failed_download_says_is_passed_on(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho no such package >&2\nexit 3\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    with pytest.raises(ChildError, match=r"could not be fetched \(no such package"):
        fetched(VARIANTS, tmp_path / "peers", lambda _: None)


def test_versions_are_fixed():
    assert "==" in peer_download.PIP_REQUIREMENT
    assert peer_download.NPM_REQUIREMENT.endswith(peer_download.NPM_VERSION)


class FakeLlama:
    """llama.cpp's functions by name; refuses to decode more than four tokens."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, name: str, *arguments: object) -> object:
        self.calls.append(name)
        if name == "llama_batch_get_one":
            return arguments[1]
        if name == "llama_decode":
            return 1 if arguments[1] > 4 else 0  # type: ignore[operator] # the count from above
        return FakeParams()


class FakeParams:
    n_ctx = 0


def test_decoding_reads_the_logits_each_time():
    fake = FakeLlama()
    llama = Llama(fake, Path("m.gguf"), n_threads=2, n_ctx=64)
    fake.calls.clear()

    llama.clear()
    llama.decode([1, 2, 3])

    assert fake.calls == [
        "llama_memory_clear", "llama_batch_get_one", "llama_decode", "llama_get_logits_ith",
    ]  # fmt: skip


def test_tokens_that_llama_cpp_does_not_take_are_an_error():
    llama = Llama(FakeLlama(), Path("m.gguf"), n_threads=2, n_ctx=64)

    with pytest.raises(RuntimeError, match=r"could not decode 5 tokens \(1\)"):
        llama.decode([1] * 5)
