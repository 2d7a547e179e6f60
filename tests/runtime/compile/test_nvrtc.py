"""NVRTC: images, lowered names, errors with their place, host headers, and what the cache key holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kgrun.graphs.errors import CompileError, DeviceUnavailable
from kgrun.runtime.compile import nvrtc
from kgrun.runtime.compile.cache import CompileCache
from kgrun.runtime.compile.nvrtc import compile_cuda

pytest.importorskip("cuda.bindings")

COPY = 'extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }\n'


def test_cubin_is_an_elf_for_the_asked_target() -> None:
    compiled = compile_cuda(COPY, name="copy.cu", arch="sm_90", cache=None)
    assert compiled.image[:4] == b"\x7fELF"
    assert (compiled.log, compiled.from_cache) == ("", False)


def test_ptx_is_text_with_line_info_and_no_trailing_nul() -> None:
    ptx = compile_cuda(COPY, name="copy.cu", arch="sm_80", kind="ptx", cache=None).image.decode()
    assert ".visible .entry copy(" in ptx
    assert ".target sm_80" in ptx
    assert '.file\t1 "' in ptx
    assert not ptx.endswith("\0")


def test_name_expressions_give_symbols_of_templates_and_plain_functions() -> None:
    source = "template <class T> __global__ void scale(T* x, T a) { *x *= a; }"
    source += "__global__ void one(int* x) { *x = 1; }"
    names = ["scale<float>", "one"]
    compiled = compile_cuda(source, name="t.cu", kind="ptx", name_expressions=names, cache=None)
    assert compiled.lowered_names["one"] == "_Z3onePi"
    assert f".entry {compiled.lowered_names['scale<float>']}(" in compiled.image.decode()


def test_an_error_has_the_users_line_and_two_lines_of_context() -> None:
    source = "__global__ void k(int* x)\n{\n    int i = 1;\n    *x = nobody;\n    *x = nothing;\n}\n"
    with pytest.raises(CompileError) as caught:
        compile_cuda(source, name="graph.json:kernels.k.source", cache=None)
    error = caught.value
    assert (error.code, error.exit) == ("KG501", 5)
    assert str(error.where) == "graph.json:kernels.k.source (line 4)"
    assert error.message.splitlines() == [
        'identifier "nobody" is undefined',
        "    3 |     int i = 1;",
        "    4 |     *x = nobody;",
    ]
    assert error.help == "1 more error in the compiler's log"
    assert 'identifier "nothing" is undefined' in str(error.details["log"])


def test_an_error_in_a_header_points_into_the_header(tmp_path: Path) -> None:
    (tmp_path / "part.cuh").write_text("// first\nint broken = ;\n")
    main = tmp_path / "main.cu"
    main.write_text('#include "part.cuh"\n' + COPY)
    with pytest.raises(CompileError) as caught:
        compile_cuda(main.read_text(), name=str(main), cache=None)
    assert str(caught.value.where).endswith("part.cuh (line 2)")
    assert "    2 | int broken = ;" in caught.value.message


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ('#include "absent.h"\n', (), 'cannot open source file "absent.h"'),
        (COPY, ("--no-such-option",), "no-such-option"),
        (
            'extern "C" __global__ void k(int* p) { __shared__ int s[99999]; s[*p] = 1; *p = s[p[1]]; }',
            (),
            "shared data",
        ),
    ],
)
def test_other_failures_say_why(source: str, options: tuple[str, ...], words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compile_cuda(source, name="k.cu", options=options, cache=None)


@pytest.mark.parametrize(
    ("entry", "code", "words"),
    [
        ("copi", "KG504", "did you mean 'copy'"),
        ("other", "KG504", "it has copy, scale"),
        ("scale", "KG502", "scale<float>"),
        ("scale<flot>", "KG502", "scale<float>"),
    ],
)
def test_an_entry_that_the_source_lacks_is_named_at_the_source(entry: str, code: str, words: str) -> None:
    source = COPY + "template <class T> __global__ void __launch_bounds__(64) scale(T* x) { *x *= 2; }\n"
    with pytest.raises(CompileError, match=f"no kernel '{entry}' in k.cu") as caught:
        compile_cuda(source, name="k.cu", kind="ptx", name_expressions=["scale<int>", entry], cache=None)
    error = caught.value
    assert (error.code, str(error.where)) == (code, "k.cu")
    assert words in str(error.help)


def test_toolkit_headers_and_common_host_headers_are_found() -> None:
    source = (
        "#include <stdio.h>\n#include <cstdint>\n#include <cfloat>\n#include <climits>\n#include <cmath>\n"
        "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n"
        'extern "C" __global__ void k(std::uint32_t* a, __half* h) {\n'
        '  *a = INT_MAX + uint8_t(FLT_MAX > M_PI); *h = __float2half(INFINITY); printf("%d", 1); }'
    )
    assert compile_cuda(source, name="k.cu", cache=None).image


def test_second_compile_comes_from_the_cache(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    first = compile_cuda(COPY, name="c.cu", kind="ptx", name_expressions=["copy"], cache=cache)
    second = compile_cuda(COPY, name="c.cu", kind="ptx", name_expressions=["copy"], cache=cache)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert (first.image, first.lowered_names) == (second.image, second.lowered_names)


def test_everything_that_matters_is_in_the_key(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    include = tmp_path / "include"
    include.mkdir()
    (include / "inner.h").write_text("#define VALUE 1\n")
    (include / "outer.h").write_text('#include "inner.h"\n')
    source = '#include "outer.h"\nextern "C" __global__ void k(int* x) { *x = VALUE; }\n'

    def compiled(**changed: object) -> bool:
        arguments: dict[str, object] = {
            "name": "k.cu",
            "kind": "ptx",
            "include_dirs": [include],
            "cache": cache,
        }
        return compile_cuda(source, **(arguments | changed)).from_cache  # type: ignore[arg-type]

    assert [compiled(), compiled()] == [False, True]
    changes: list[dict[str, object]] = [
        {"name": "j.cu"},
        {"kind": "cubin"},
        {"arch": "sm_80"},
        {"options": ["-DA=1"]},
    ]
    assert [compiled(**change) for change in changes] == [False] * 4
    (include / "inner.h").write_text("#define VALUE 2\n")
    assert [compiled(), compiled()] == [False, True]
    (include / "inner.h").unlink()
    with pytest.raises(CompileError):
        compiled()


def test_a_computed_include_is_never_cached(tmp_path: Path) -> None:
    (tmp_path / "h.h").write_text("\n")
    source = '#define H "h.h"\n#include H\n' + COPY
    for _ in range(2):
        cache = CompileCache(tmp_path / "cache")
        assert not compile_cuda(source, name="c.cu", include_dirs=[tmp_path], cache=cache).from_cache


def test_without_nvrtc_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceUnavailable) as caught:
        compile_cuda(COPY, name="c.cu", cache=None)
    assert "kgrun[cpu]" in str(caught.value.help)


def test_first_error_of_an_empty_log() -> None:
    assert nvrtc.first_error("", "", "k.cu").message == "the compiler gave no log"
