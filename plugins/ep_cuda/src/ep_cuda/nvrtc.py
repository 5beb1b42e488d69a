"""NVRTC, the vendor's compiler as a library: CUDA C++ in, machine code out.

A thin layer over its functions in C. It needs neither driver nor device. What is compiled, and
what becomes of the code, isn't known here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence

from ep_core.errors import CompileError, ProviderUnavailableError

__all__ = ["Nvrtc", "target_for"]

_LINES_OF_LOG = 20

_FUNCTIONS = (
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
    "nvrtcDestroyProgram",
)


class Nvrtc:
    """One library of NVRTC. Safe on many threads: it compiles one program at a time.

    Args:
        library: path, or a name that the dynamic linker finds.

    Raises:
        ProviderUnavailableError: it can't be loaded, or is too old.
    """

    def __init__(self, library: str) -> None:
        try:
            loaded = ctypes.CDLL(library)
        except OSError as error:
            raise ProviderUnavailableError(f"NVRTC can't be loaded: {error}") from error
        try:
            self._functions: dict[str, Callable[..., int]] = {
                name: getattr(loaded, name) for name in _FUNCTIONS
            }
        except AttributeError as error:
            raise ProviderUnavailableError(
                f"{library} is no NVRTC of CUDA 11.2 or later: {error}",
                fix="Install a newer one: pip install 'ep-cuda[nvrtc]'.",
            ) from error
        loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._error_text = loaded.nvrtcGetErrorString
        self._lock = threading.Lock()

    def version(self) -> tuple[int, int]:
        """Major and minor version, those of the toolkit that it is of."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities that it compiles for, 90 for 9.0, in ascending order."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return tuple(sorted(found))

    def compile(self, text: str, name: str, target: str, options: Sequence[str]) -> bytes:
        """Compile a program.

        Args:
            text: the program.
            name: what the log calls it.
            target: `sm_90` for code of that chip, `compute_90` for PTX, which drivers translate.
            options: of the compiler, beside the target.

        Raises:
            CompileError: the compiler refuses it, with the first lines of the log.
        """
        wanted = [f"--gpu-architecture={target}", *options]
        encoded = (ctypes.c_char_p * len(wanted))(*(option.encode() for option in wanted))
        program = ctypes.c_void_p()
        with self._lock:
            self._call(
                "nvrtcCreateProgram",
                ctypes.byref(program),
                text.encode(),
                name.encode(),
                0,
                None,
                None,
            )
            try:
                status = self._functions["nvrtcCompileProgram"](program, len(wanted), encoded)
                if status:
                    raise self._refused(program, name, target, status)
                kind = "CUBIN" if target.startswith("sm_") else "PTX"
                return self._bytes(program, f"nvrtcGet{kind}Size", f"nvrtcGet{kind}")
            finally:
                self._functions["nvrtcDestroyProgram"](ctypes.byref(program))

    def _refused(
        self, program: ctypes.c_void_p, name: str, target: str, status: int
    ) -> CompileError:
        log = self._bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
        lines = [line for line in log.decode("utf-8", "replace").split("\n") if line.strip("\0 ")]
        told = "\n".join(lines[:_LINES_OF_LOG]) or self._words(status)
        return CompileError(
            f"NVRTC can't compile {name} for {target}: {told}",
            fix="Update nvidia-cuda-nvrtc, or have other providers run these nodes.",
        )

    def _bytes(self, program: ctypes.c_void_p, size_of: str, content_of: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(size_of, program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(content_of, program, content)
        return content.raw

    def _call(self, function: str, *arguments: object) -> None:
        status = self._functions[function](*arguments)
        if status:
            raise CompileError(f"{function} failed: {self._words(status)}")

    def _words(self, status: int) -> str:
        text: bytes | None = self._error_text(status)
        return (text or b"unknown error").decode("utf-8", "replace")


def target_for(capability: tuple[int, int], architectures: Sequence[int]) -> str | None:
    """What to compile for so that a device of a compute capability runs it.

    Code for one minor version runs on later ones of the same major version. For a chip that is
    newer than the compiler, PTX of the newest architecture is left to the driver.

    Returns:
        `sm_90` or `compute_90`; None for a chip that is older than all of them.
    """
    wanted = capability[0] * 10 + capability[1]
    same = [arch for arch in architectures if arch // 10 == capability[0] and arch <= wanted]
    if same:
        return f"sm_{max(same)}"
    older = [arch for arch in architectures if arch < wanted]
    return f"compute_{max(older)}" if older else None
