"""Every sentence of SECURITY.md has a test, or is advice or a limit that no test can show."""

from __future__ import annotations

import ast
import re
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "ibidem"
PICKLES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}

# The beginning of each sentence, and its tests. No tests: the sentence is advice, or says what is not protected.
SENTENCES: dict[str, tuple[str, ...]] = {
    "Parallel text (TMX, XLIFF, PO": (
        "text/test_tmx.py::test_an_entity_that_names_a_file_is_refused",
        "text/test_tmx.py::test_nested_entities_are_refused",
        "text/test_xml.py::test_entities_are_refused",
        "text/test_limits.py::test_hostile_files_are_refused_in_little_memory",
        "text/test_stream.py::test_an_invalid_byte_is_named_with_its_line_and_a_remedy",
        "text/test_plain.py::test_invalid_bytes_and_long_lines_of_documents_are_refused",
    ),
    "Parallel text is read in bounded memory": (
        "text/test_limits.py::test_hostile_files_are_refused_in_little_memory",
        "text/test_limits.py::test_parts_of_xml_are_limited",
        "text/test_limits.py::test_json_lines_are_limited",
        "text/test_limits.py::test_the_memory_of_decompression_is_limited",
        "text/test_limits.py::test_units_that_give_no_pair_are_limited",
        "text/test_tmx.py::test_memory_does_not_grow_with_the_file",
    ),
    "A document that is translated is read whole": (),
    "Base models and memories are not sandboxed": (),
    "ibidem runs no code from a model folder": (
        "cli/test_hostile_models.py::test_refused_and_not_executed",
        "cli/test_hostile_models.py::test_loaded_without_what_it_brings",
        "cli/test_hostile_models.py::test_stdin_is_not_read_for_a_confirmation",
        "model/test_loading.py::test_only_needed_files_are_downloaded",
        "model/test_loading.py::test_nothing_is_loaded_in_an_unsafe_way",
    ),
    "`python -m ibidem.model.convert` is the one place": (
        "test_security.py::test_pickles_of_others_are_read_in_one_module",
        "model/test_convert.py::test_conversion_refuses_other_files",
    ),
    "A memory holds no pickles": (
        "test_security.py::test_no_file_of_a_memory_is_a_pickle",
        "test_security.py::test_pickles_of_others_are_read_in_one_module",
        "trust/test_damage.py::test_damaged_file",
    ),
    "This detects damage and most old copies": (
        "trust/test_damage.py::test_damaged_file",
        "trust/test_damage.py::test_swapped_files",
        "trust/test_damage.py::test_stale_files_from_a_backup",
    ),
    "A faiss index inside a memory is read by faiss": (),
    "Learning in several processes sends pickles": (),
    "`ibidem serve` listens on loopback by default": (
        "serve/test_server.py::test_loopback",
        "cli/test_serve.py::test_other_addresses_require_keys",
    ),
    "It accepts only its own host names": (
        "serve/test_middleware.py::test_foreign_host_names_are_refused",
        "serve/test_middleware.py::test_post_from_other_origins_is_refused",
        "serve/test_middleware.py::test_get_from_other_origins_is_refused",
    ),
    "Put a proxy in front of a public server": (),
    "Bodies are counted while they arrive": (
        "serve/test_request.py::test_body_size_is_counted_while_it_arrives",
        "serve/test_request.py::test_a_large_declared_length_is_refused_before_the_body",
        "serve/test_middleware.py::test_too_many_concurrent_requests",
        "serve/test_auth.py::test_rate_limit_of_keys_and_addresses",
        "serve/test_jobs.py::test_imports_are_limited",
    ),
    "Rate and key are checked before a body is read": (
        "serve/test_auth.py::test_key_and_rate_are_checked_before_the_body_is_read",
        "serve/test_auth.py::test_an_invalid_key_in_the_body_is_refused_before_other_fields",
    ),
    "A cancelled import stops": (
        "serve/test_memories.py::test_a_cancelled_import_removes_its_file",
        "serve/test_jobs.py::test_a_decompression_bomb_can_be_cancelled",
        "serve/test_jobs.py::test_learning_stops_at_the_next_chunk",
    ),
    "At shutdown an import stops too": (
        "serve/test_jobs.py::test_closing_stops_jobs_and_the_next_server_continues_them",
    ),
    "Keys are 256 random bits": (
        "serve/test_auth.py::test_a_key_has_256_bits",
        "serve/test_auth.py::test_only_the_hash_of_a_key_is_stored",
    ),
    "A key has a scope": ("serve/test_auth.py::test_every_scope_is_refused_what_it_does_not_cover",),
    "A scope applies to all memories": (),
    "The file of keys is read again": ("serve/test_auth.py::test_revoked_key_is_refused_by_a_running_server",),
    "`--read-only` refuses all changes": ("serve/test_memories.py::test_read_only_server",),
    "With `--certificate` the server uses TLS 1.2": ("serve/test_server.py::test_tls",),
    "`--audit FILE` writes a line for each change": ("serve/test_audit.py::test_every_change_has_a_line_without_text",),
    "Everyone who can write to a memory": (
        "trust/test_poisoned.py::test_removing_the_origin_restores_every_translation",
    ),
    "`ibidem shard` listens on loopback by default": (
        "retrieve/sharded/test_client.py::test_an_address_that_others_reach_needs_a_secret",
        "retrieve/sharded/test_server.py::test_a_proof_without_the_secret_gets_nothing",
        "retrieve/sharded/test_hostile_shard.py::test_a_false_shard_without_the_secret_is_refused",
    ),
    "What follows is neither encrypted nor signed": (),
    "Requests, answers and connections have limits": (
        "retrieve/sharded/test_server.py::test_searches_beyond_the_limits_close_the_connection",
        "retrieve/sharded/test_client.py::test_more_clients_than_allowed_are_refused",
        "retrieve/sharded/test_protocol.py::test_frames_beyond_the_limit_are_refused_by_their_header",
        "retrieve/sharded/test_protocol.py::test_impossible_neighbours_are_refused",
        "retrieve/sharded/test_hostile_shard.py::test_lies_are_left_out",
    ),
    "No message is a pickle": (
        "test_security.py::test_pickles_of_others_are_read_in_one_module",
        "retrieve/sharded/test_protocol.py::test_changed_frames_are_frames_or_errors",
    ),
    "`requirements-hashed.txt` lists every package": (
        "test_lock.py::test_every_entry_has_hashes_and_nothing_else",
        "test_lock.py::test_all_that_is_required_is_locked",
    ),
    "`make lock` writes it anew": ("test_lock.py::test_versions_are_those_of_the_constraints",),
    "`make sbom` lists the packages": (
        "test_sbom.py::test_every_installed_package_of_the_lock_has_a_suitable_licence",
    ),
    "`tests/test_security.py` names the test": (
        "test_security.py::test_every_sentence_is_listed",
        "test_security.py::test_named_tests_exist",
    ),
    "Report a vulnerability": (),
}


def read_sentences() -> list[str]:
    _, *paragraphs = (ROOT / "SECURITY.md").read_text("utf-8").split("\n\n")
    found = []
    for paragraph in paragraphs:
        text = re.sub(r"^\*\*[\w ]+\.\*\* ", "", " ".join(paragraph.split()))
        found += re.split(r"(?<=\.) (?=[A-Z`]|ibidem )", text)
    return found


def test_every_sentence_is_listed() -> None:
    sentences = read_sentences()
    assert [sentence for sentence in sentences if not sentence.startswith(tuple(SENTENCES))] == []
    assert [start for start in SENTENCES if sum(sentence.startswith(start) for sentence in sentences) != 1] == []


@pytest.mark.parametrize("start", [start for start, tests in SENTENCES.items() if tests])
def test_named_tests_exist(start: str) -> None:
    for test in SENTENCES[start]:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test


def test_pickles_of_others_are_read_in_one_module() -> None:
    """The processes of one learning exchange pickles; what else is unpickled are weights, by a restricted unpickler."""
    importing, loading = set(), []
    for file in SOURCES.rglob("*.py"):
        name = file.relative_to(SOURCES).as_posix()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            if {each.partition(".")[0] for each in names} & PICKLES:
                importing.add(name)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                given = {each.arg: ast.unparse(each.value) for each in node.keywords}
                called = ast.unparse(node.func)
                if called == "torch.load":
                    loading.append((name, given.get("weights_only")))
                assert called not in ("np.load", "numpy.load") or given.get("allow_pickle", "False") == "False", name
    assert importing == {"model/convert.py", "executor/worker.py", "executor/local.py"}
    # The second reads the checkpoint of a training.
    assert sorted(loading) == [("learn/compact/trainer.py", "True"), ("model/convert.py", "True")]


def test_no_file_of_a_memory_is_a_pickle() -> None:
    """Neither a bare pickle nor one inside an archive, as `torch.save` writes it."""
    archive = max((ROOT / "tests" / "trust" / "golden").glob("format-*.tar.xz"))
    kinds = set()
    with tarfile.open(archive) as members:
        for member in members:
            if member.isreg() and member.name.startswith("memory/"):
                content = members.extractfile(member)
                assert content is not None
                begin = content.read(4)
                assert not begin.startswith((b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")), member.name
                kinds.add(Path(member.name).suffix)
    assert kinds == {".json", ".bin", ".safetensors", ".native", ".log", ".md"}
