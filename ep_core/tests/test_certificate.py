"""Certificates: strict reading, what they are bound to, which nodes they grant, the policy."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import logging
import re
import sys

import pytest

from ep_core.certificates.content import content_hash
from ep_core.certificates.file import read_certificate
from ep_core.certificates.grants import CertificatePolicy, certificate_policy, grants_for
from ep_core.certificates.lookup import find_certificate
from ep_core.contracts import API_VERSION, OptionSpec, ProviderInfo
from ep_core.errors import CertificateError, OptionError
from ep_core.graph import Graph, Node, ValueInfo
from ep_core.types import DataType, DeviceInfo, DeviceSpeed, OpSet, SequenceType, TensorType

INFO = ProviderInfo("toy", "1.0", API_VERSION)
DEVICE = DeviceInfo("toy", "0", "cpu", fingerprint="avx2/1.0")
UNCERTIFIED = "uncertified: run `ep certify toy` (it has no certificate)"
CONTENT = {
    "format": 1,
    "provider": "toy",
    "distribution": "ep-toy",
    "version": "1.0",
    "content_hash": "",
    "api_from": list(API_VERSION),
    "api_until": list(API_VERSION),
    "device_fingerprint": "avx2/1.0",
    "kit_version": "0.1",
    "cases_hash": "sha256:00",
    "results_hash": "sha256:11",
    "level": "full",
    "date": "2030-12-31",
    "options": {},
    "waivers": [
        {"id": "W1", "reason": "known", "owner": "toy team", "expires": "9999-12-31"},
    ],
    "overrides": [],
    "rows": [
        {
            "domain": "",
            "op_type": "Gather",
            "since": 11,
            "until": 13,
            "inputs": [["tensor(float)", "tensor(double)"], ["tensor(int64)"]],
            "outputs": [["tensor(float)", "tensor(double)"]],
            "predicate": "axis 0",
        },
        {
            "domain": "",
            "op_type": "Concat",
            "since": 1,
            "until": 13,
            "inputs": [["tensor(float)"]],
            "outputs": [None],
            "predicate": "",
        },
    ],
}


SPEED = {
    "flops_per_second": 2e11,
    "bytes_per_second": 30_000_000_000,
    "operator_seconds": 1e-6,
    "partition_seconds": 5e-6,
}


def changed(**changes):
    return {**copy.deepcopy(CONTENT), **changes}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# ---------------------------------------------------------------- reading


def test_a_certificate_is_read_whole(tmp_path):
    certificate = read_certificate(write(tmp_path / "c.json", CONTENT))
    assert certificate.provider == "toy"
    assert certificate.api_from == API_VERSION
    assert (certificate.level, certificate.date) == ("full", "2030-12-31")
    assert certificate.waivers == (CONTENT["waivers"][0],)
    gather, concat = certificate.rows
    assert gather.inputs == (
        frozenset({"tensor(float)", "tensor(double)"}),
        frozenset({"tensor(int64)"}),
    )
    assert gather.predicate == "axis 0"
    assert concat.outputs == (None,)


def test_a_declared_speed_is_read_and_may_be_missing(tmp_path):
    assert read_certificate(write(tmp_path / "c.json", CONTENT)).speed is None
    told = read_certificate(write(tmp_path / "c.json", changed(speed=SPEED))).speed
    assert told == DeviceSpeed(2e11, 3e10, 1e-6, 5e-6)
    full = {**SPEED, "copy_seconds": 2e-5, "copy_bytes_per_second": 12_000_000_000}
    told = read_certificate(write(tmp_path / "c.json", changed(speed=full))).speed
    assert told == DeviceSpeed(2e11, 3e10, 1e-6, 5e-6, 2e-5, 1.2e10)


def without(key):
    return {name: value for name, value in CONTENT.items() if name != key}


def with_row(**changes):
    return changed(rows=[{**CONTENT["rows"][0], **changes}])


BAD = {
    "empty": ("", "can't read"),
    "no JSON": ("{", "can't read"),
    "NaN": ('{"format": NaN}', "NaN is no JSON"),
    "a key twice": ('{"format": 1, "format": 1}', "a key appears twice"),
    "deep": ("[" * 100_000, "can't read"),
    "a list": ([], "expected 1; got None"),
    "other format": (changed(format=2), "expected 1; got 2"),
    "no format": (without("format"), "got None"),
    "missing key": (without("rows"), "key 'rows' is missing"),
    "unknown key": (changed(row=[]), "unknown key 'row'. Did you mean 'rows'"),
    "wrong type": (changed(provider=3), "provider; expected str; got int"),
    "format is true": (changed(format=True), "expected 1; got True"),
    "half a version": (changed(api_from=[1]), "expected two integers"),
    "text version": (changed(api_until=["1", "0"]), "expected two integers"),
    "api range": (changed(api_from=[2, 0], api_until=[1, 0]), "later than api_until"),
    "row is text": (changed(rows=["Add"]), r"rows\[0\]; expected an object; got str"),
    "versions": (with_row(since=14), "14 to 13"),
    "version 0": (with_row(since=0), "0 to 13"),
    "since is true": (with_row(since=True), "since; expected int; got bool"),
    "types": (with_row(inputs=["tensor(float)"]), "lists of ONNX type strings"),
    "type numbers": (with_row(outputs=[[1]]), "lists of ONNX type strings"),
    "speed is text": (changed(speed="fast"), "speed; expected dict; got str"),
    "speed is null": (changed(speed=None), "speed; expected dict; got NoneType"),
    "half a speed": (changed(speed={"flops_per_second": 1.0}), "speed: key 'bytes_per_second'"),
    "speed of 0": (changed(speed={**SPEED, "bytes_per_second": 0}), "rates above 0"),
    "speed is true": (changed(speed={**SPEED, "copy_seconds": True}), "expected float; got bool"),
    "huge speed": (changed(speed={**SPEED, "copy_seconds": 10**400}), "speed"),
    "other speed": (changed(speed={**SPEED, "tops": 1.0}), "speed: unknown key 'tops'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_a_certificate_error(tmp_path, case):
    content, reason = BAD[case]
    with pytest.raises(CertificateError, match=reason):
        read_certificate(write(tmp_path / "c.json", content))


def test_a_missing_or_binary_file_is_a_certificate_error(tmp_path):
    with pytest.raises(CertificateError):
        read_certificate(tmp_path / "none.json")
    with pytest.raises(CertificateError):
        read_certificate(tmp_path)
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CertificateError):
        read_certificate(tmp_path / "c.json")


# ---------------------------------------------------------------- finding


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A wheel's package `ep_toy` with a RECORD, and an empty folder of the user."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    site = tmp_path / "site"
    files = ["ep_toy/__init__.py", "ep_toy/native.so", "ep_toy/__pycache__/__init__.pyc"]
    for name in files:
        write(site / name, f"content of {name}")
    info = site / "ep_toy-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: ep-toy\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[ep_core.providers]\ntoy = ep_toy\n")
    files += ["ep_toy-1.0.dist-info/METADATA", "../bin/toy"]
    write(info / "RECORD", "".join(f"{name},,\n" for name in files))
    (distribution,) = importlib.metadata.distributions(path=[str(site)])
    return distribution


def ship(distribution, content):
    name = "ep_toy/certificates/cpu.json"
    record = distribution.locate_file("ep_toy-1.0.dist-info/RECORD")
    if name not in record.read_text():
        record.write_text(f"{record.read_text()}{name},,\n")
    write(distribution.locate_file(name), content)


def fitting(distribution, **changes):
    return changed(content_hash=content_hash(distribution), **changes)


def test_without_a_certificate_the_reason_says_what_to_do(installed):
    assert find_certificate(INFO, installed, DEVICE, {}) == (
        None,
        UNCERTIFIED,
    )
    certificate, reason = find_certificate(INFO, None, DEVICE, {})
    assert certificate is None
    assert "registered by hand" in reason


def test_a_shipped_certificate_is_found(installed):
    ship(installed, fitting(installed))
    certificate, reason = find_certificate(INFO, installed, DEVICE, {})
    assert certificate.kit_version == "0.1"
    assert reason == ""


def test_the_users_folder_comes_after_the_package(installed, tmp_path):
    folder = tmp_path / "data" / "ep_core" / "certificates"
    write(folder / "a.json", fitting(installed, provider="other"))
    write(folder / "b.json", fitting(installed, kit_version="user"))
    assert find_certificate(INFO, installed, DEVICE, {})[0].kit_version == "user"
    ship(installed, fitting(installed))
    assert find_certificate(INFO, installed, DEVICE, {})[0].kit_version == "0.1"
    ship(installed, fitting(installed, version="0.9"))
    assert find_certificate(INFO, installed, DEVICE, {})[0].kit_version == "user"


MAJOR, MINOR = API_VERSION
MISFITS = {
    "provider": ({"provider": "other"}, "it has no certificate"),
    "distribution": ({"distribution": "ep-other"}, "it is for ep-other 1.0, installed is ep-toy"),
    "version": ({"version": "0.9"}, "it is for ep-toy 0.9, installed is ep-toy 1.0"),
    "api": ({"api_from": [0, 1], "api_until": [0, 9]}, "provider API"),
    "device": ({"device_fingerprint": "avx512"}, "for device 'avx512', not 'avx2/1.0'"),
    "option": ({"options": {"precision": "f16"}}, "it is for option precision=f16, not None"),
    "content": ({"content_hash": "sha256:00"}, "files have changed"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_certificate_for_something_else_is_not_taken(installed, case):
    changes, reason = MISFITS[case]
    ship(installed, {**fitting(installed), **changes})
    certificate, text = find_certificate(INFO, installed, DEVICE, {})
    assert certificate is None
    assert text.startswith("uncertified: run `ep certify toy` (")
    assert re.search(reason, text)


def test_a_certificate_holds_for_the_numerics_options_it_was_made_with(installed):
    specs = {
        "precision": OptionSpec("f32", "the precision", numerics=True),
        "threads": OptionSpec(1, "the number of threads"),
    }
    info = ProviderInfo("toy", "1.0", API_VERSION, options=specs)
    ship(installed, fitting(installed, options={"precision": "f32"}))
    for options, reason in [
        ({"precision": "f32", "threads": 1}, ""),
        ({"precision": "f32", "threads": 8}, ""),
        ({"precision": "f16", "threads": 1}, "it is for option precision=f32, not f16"),
    ]:
        found, text = find_certificate(info, installed, DEVICE, options)
        assert (found is not None) is (not reason)
        assert reason in text


def test_a_broken_certificate_is_part_of_the_reason(installed):
    ship(installed, "{")
    certificate, reason = find_certificate(INFO, installed, DEVICE, {})
    assert certificate is None
    assert "cpu.json: can't read" in reason


def test_the_api_range_has_both_ends_in_it(installed, monkeypatch):
    monkeypatch.setattr("ep_core.certificates.lookup.API_VERSION", (1, 3))
    for start, end, fits in [
        ((1, 0), (1, 3), True),
        ((1, 3), (2, 0), True),
        ((1, 4), (2, 0), False),
    ]:
        ship(installed, fitting(installed, api_from=list(start), api_until=list(end)))
        assert (find_certificate(INFO, installed, DEVICE, {})[0] is not None) is fits


# ---------------------------------------------------------------- content hash


def test_the_content_hash_covers_code_and_libraries_only(installed):
    before = content_hash(installed)
    assert before.startswith("sha256:")
    ship(installed, CONTENT)
    write(installed.locate_file("ep_toy/__pycache__/__init__.pyc"), "recompiled")
    assert content_hash(installed) == before
    write(installed.locate_file("ep_toy/native.so"), "rebuilt")
    after = content_hash(installed)
    assert after != before
    write(installed.locate_file("ep_toy/native.so"), "content of ep_toy/native.so")
    assert content_hash(installed) == before


def test_a_compiled_module_counts_as_its_listed_sources(installed):
    site = installed.locate_file("")
    record = site / "ep_toy-1.0.dist-info/RECORD"
    before = content_hash(installed)
    write(site / "ep_toy/native.sources", "12ab  native.cpp\n")
    record.write_text(record.read_text() + "ep_toy/native.sources,,\n")
    listed = content_hash(installed)
    assert listed != before
    write(site / "ep_toy/native.so", "built by another compiler")
    assert content_hash(installed) == listed
    write(site / "ep_toy/other.so", "no list beside it")
    record.write_text(record.read_text() + "ep_toy/other.so,,\n")
    assert content_hash(installed) != listed
    write(site / "ep_toy/native.sources", "34cd  native.cpp\n")
    write(site / "ep_toy/other.so", "")
    assert content_hash(installed) != listed


def declare(distribution, value):
    points = distribution.locate_file("ep_toy-1.0.dist-info/entry_points.txt")
    write(points, f"[ep_core.providers]\ntoy = ep_toy\n[ep_core.content]\nkernels = {value}\n")


def test_declared_packages_of_others_count(installed, monkeypatch):
    site = installed.locate_file("")
    monkeypatch.syspath_prepend(str(site))
    # Importing the package would fail: only its files are looked at.
    write(site / "ep_tools_of_toys/__init__.py", "raise RuntimeError('imported')")
    write(site / "ep_tools_of_toys/kernels/one.cl", "a kernel")
    write(site / "ep_tools_of_toys/kernels/__pycache__/one.pyc", "byte code")
    before = content_hash(installed)
    declare(installed, "ep_tools_of_toys.kernels")
    with_kernels = content_hash(installed)
    assert with_kernels != before
    write(site / "ep_tools_of_toys/__init__.py", "no part of it")
    write(site / "ep_tools_of_toys/kernels/__pycache__/one.pyc", "compiled again")
    assert content_hash(installed) == with_kernels
    write(site / "ep_tools_of_toys/kernels/one.cl", "another kernel")
    assert content_hash(installed) != with_kernels


@pytest.mark.parametrize("value", ["ep_not_there", "ep_toy.kernels", "ep_toy./etc", ".."])
def test_a_declared_package_that_is_missing_is_a_reason(installed, monkeypatch, value):
    ship(installed, fitting(installed))
    monkeypatch.syspath_prepend(str(installed.locate_file("")))
    declare(installed, value)
    with pytest.raises(CertificateError, match="can't be found"):
        content_hash(installed)
    certificate, reason = find_certificate(INFO, installed, DEVICE, {})
    assert certificate is None
    assert f"needs the package '{value}', whose files can't be found" in reason


def test_the_order_in_record_does_not_matter(installed):
    before = content_hash(installed)
    record = installed.locate_file("ep_toy-1.0.dist-info/RECORD")
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(reversed(lines)))
    assert content_hash(installed) == before


def test_an_editable_install_hashes_like_its_wheel(installed, monkeypatch):
    wheel = content_hash(installed)
    site = installed.locate_file("")
    monkeypatch.syspath_prepend(str(site))
    # Tools for building write modules of their own into editable installs.
    write(site / "_editable_finder.py", "")
    lines = "_editable_impl_ep_toy.pth,,\n_editable_finder.py,,\n"
    write(site / "ep_toy-1.0.dist-info" / "RECORD", lines)
    origin = {"url": "file:///src", "dir_info": {"editable": True}}
    write(site / "ep_toy-1.0.dist-info" / "direct_url.json", origin)
    ship(installed, CONTENT)
    assert content_hash(installed) == wheel
    assert "ep_toy" not in sys.modules
    write(site / "ep_toy" / "kernels.py", "new")
    assert content_hash(installed) != wheel


def test_a_missing_file_or_an_empty_package_has_no_hash(installed):
    record = installed.locate_file("ep_toy-1.0.dist-info/RECORD")
    record.write_text("ep_toy-1.0.dist-info/METADATA,,\n")
    with pytest.raises(CertificateError, match="lists no files"):
        content_hash(installed)
    installed.locate_file("ep_toy/native.so").unlink()
    record.write_text("ep_toy/native.so,,\n")
    with pytest.raises(CertificateError):
        content_hash(installed)


# ---------------------------------------------------------------- grants and policy


def graph_of(op_type, inputs, outputs, version=13, domain=""):
    """A graph of one node; inputs and outputs are types, None for unknown, "" for left out."""
    values, names = {}, {"i": [], "o": []}
    for side, types in (("i", inputs), ("o", outputs)):
        for number, kind in enumerate(types):
            name = "" if kind == "" else f"{side}{number}"
            names[side].append(name)
            if name:
                values[name] = ValueInfo(name, kind)
    node = Node("n", op_type, domain, version, tuple(names["i"]), tuple(names["o"]))
    graph = Graph("g", (), (), (node,), {}, OpSet({"": version}), values)
    return graph, node


FLOAT = TensorType(DataType.FLOAT, (2,))
DOUBLE = TensorType(DataType.DOUBLE)
INT64 = TensorType(DataType.INT64, None)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "version", "reason"),
    [
        ("Gather", [FLOAT, INT64], [FLOAT], 13, ""),
        ("Gather", [DOUBLE, INT64], [DOUBLE], 11, ""),
        ("Gather", [FLOAT, FLOAT], [FLOAT], 13, "with types tensor(float), tensor(float)"),
        ("Gather", [FLOAT, INT64], [INT64], 13, "no row for Gather with types"),
        ("Gather", [FLOAT, None], [FLOAT], 13, ""),
        ("Gather", [FLOAT, INT64], [FLOAT], 14, "no row for Gather version 14"),
        ("Gather", [FLOAT, INT64], [FLOAT], 10, "no row for Gather version 10"),
        ("Concat", [FLOAT] * 5, [FLOAT], 13, ""),
        ("Concat", [FLOAT, FLOAT, INT64], [FLOAT], 13, "no row for Concat with types"),
        ("Concat", [FLOAT, "", FLOAT], [None], 13, ""),
        ("Concat", [FLOAT], [SequenceType(FLOAT)], 13, ""),
        ("Relu", [FLOAT], [FLOAT], 13, "no row for Relu"),
    ],
)
def test_rows_grant_by_operator_version_and_types(
    installed, op_type, inputs, outputs, version, reason
):
    ship(installed, fitting(installed))
    grants = grants_for(INFO, installed, DEVICE, {}, CertificatePolicy.ENFORCE)
    granted, text = grants(*graph_of(op_type, inputs, outputs, version))
    assert granted is (reason == "")
    assert reason in text
    assert granted or text.startswith("uncertified: run `ep certify toy` (no row for ")


def test_another_domain_has_rows_of_its_own(installed):
    ship(installed, fitting(installed))
    grants = grants_for(INFO, installed, DEVICE, {}, CertificatePolicy.ENFORCE)
    graph, node = graph_of("Gather", [FLOAT, INT64], [FLOAT], domain="com.toy")
    assert grants(graph, node) == (
        False,
        "uncertified: run `ep certify toy` (no row for com.toy.Gather)",
    )


def test_enforce_without_a_certificate_grants_nothing(installed):
    grants = grants_for(INFO, installed, DEVICE, {}, CertificatePolicy.ENFORCE)
    graph, node = graph_of("Relu", [FLOAT], [FLOAT])
    assert grants(graph, node) == (False, UNCERTIFIED)


def test_warn_grants_and_says_so(installed, caplog):
    with caplog.at_level(logging.WARNING, "ep_core"):
        grants = grants_for(INFO, installed, DEVICE, {}, CertificatePolicy.WARN)
    assert f"provider 'toy': {UNCERTIFIED}" in caplog.text
    graph, node = graph_of("Relu", [FLOAT], [FLOAT])
    assert grants(graph, node) == (True, UNCERTIFIED)


def test_off_grants_everything_and_looks_for_nothing(installed, monkeypatch):
    monkeypatch.setattr("ep_core.certificates.grants.find_certificate", None)
    grants = grants_for(INFO, installed, DEVICE, {}, CertificatePolicy.OFF)
    assert grants(*graph_of("Relu", [FLOAT], [FLOAT])) == (True, "")


def test_the_policy_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("EP_CERTIFICATE_POLICY", raising=False)
    assert certificate_policy() is CertificatePolicy.ENFORCE
    for policy in CertificatePolicy:
        monkeypatch.setenv("EP_CERTIFICATE_POLICY", policy.value)
        assert certificate_policy() is policy
        assert grants_for(INFO, None, DEVICE, {}).policy is policy
    monkeypatch.setenv("EP_CERTIFICATE_POLICY", "enforced")
    with pytest.raises(OptionError, match="Did you mean 'enforce'"):
        certificate_policy()
