"""Lets PyPI's CUDA build of torch be imported on a machine without a GPU and without the nvidia-* packages.

PyPI's torch links against libcudart, libcublas, libnccl and others, 3 GB of packages that a CPU never calls. Each of
those libraries is replaced by a stand-in of a few kB in torch/lib, which is on the rpath of every torch library: it has
the symbols, with their version names, that torch asks of it, and each function answers cudaErrorNoDevice.

Usage: cuda_stubs.py SITE_PACKAGES (needs cc and readelf, about 4 s)
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = re.compile(r"^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux.*)\.so")
# Libraries without symbol versions: which of them a symbol belongs to shows only in its prefix.
UNVERSIONED = {
    "nccl": "libnccl.so.2",
    "cusparseLt": "libcusparseLt.so.0",
    "cuFile": "libcufile.so.0",
    "curand": "libcurand.so.10",
    "nvshmem": "libnvshmem_host.so.3",
}
# ncclGetLastError returns text; cudaGetLastError returns a code.
RETURNS_TEXT = re.compile(
    r"(GetErrorString|GetErrorName|GetStatusString|GetStatusName|^ncclGetLastError|_error_string)$"
)
NO_DEVICE = 100  # cudaErrorNoDevice in the CUDA runtime API's cudaError_t


@dataclass(slots=True)
class Wanted:
    """What torch asks of libraries that are not there: library -> symbol -> version name (None: unversioned)."""

    symbols: dict[str, dict[str, str | None]] = field(default_factory=lambda: defaultdict(dict))
    unversioned: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)


def readelf(library: Path) -> list[str]:
    """The dynamic section, the version needs and the dynamic symbols of one library, one line each."""
    command = ["readelf", "-dVW", "--dyn-syms", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed_versions(lines: list[str]) -> dict[str, str]:
    """Version name -> the library it is asked of, from the version needs section."""
    found: dict[str, str] = {}
    library = ""
    for line in lines:
        if match := re.search(r"Version: 1\s+File: (\S+)", line):
            library = match[1]
        elif library and (match := re.search(r"Name: (\S+)\s+Flags", line)):
            found.setdefault(match[1], library)
    return found


def symbols(lines: list[str]) -> Iterator[tuple[str, str, str, bool]]:
    """(name, version or empty, binding, undefined) of each dynamic symbol."""
    for line in lines:
        parts = line.split()
        if len(parts) >= 8 and re.match(r"^\d+:$", parts[0]):
            name, _, version = parts[7].partition("@")
            yield name, version.lstrip("@"), parts[4], parts[6] == "UND"


def collect(library: Path, own: set[str], wanted: Wanted) -> None:
    """Add to `wanted` what one torch library needs from outside torch and the system."""
    lines = readelf(library)
    for line in lines:
        if (match := re.search(r"\(NEEDED\).*\[(.*?)\]", line)) and match[1] not in own and not SYSTEM.match(match[1]):
            wanted.symbols[match[1]]  # a library may be needed without any symbol of it
    versions = needed_versions(lines)
    for name, version, binding, undefined in symbols(lines):
        if not undefined:
            wanted.defined.add(name)
        elif binding == "WEAK":
            continue
        elif not version:
            wanted.unversioned.add(name)
        elif (asked_of := versions.get(version)) and asked_of not in own and not SYSTEM.match(asked_of):
            wanted.symbols[asked_of][name] = version


def scan(lib: Path) -> dict[str, dict[str, str | None]]:
    """The stand-ins that torch/lib needs: library -> its symbols with their version names."""
    own = {path.name for path in lib.glob("*.so*")}
    wanted = Wanted()
    for name in sorted(own - {"libcaffe2_nvrtc.so"}):  # loaded only when a kernel is compiled for a GPU
        collect(lib / name, own, wanted)
    for name in sorted(wanted.unversioned - wanted.defined):
        for prefix, library in UNVERSIONED.items():
            if name.startswith(prefix):
                wanted.symbols[library][name] = None
    return wanted.symbols


def function(name: str) -> str:
    """C source of one stand-in function. Declared without parameters: no caller's arguments are looked at."""
    if name.startswith("__cuda"):  # registration of kernels when a library is loaded; the result is a handle
        return f"void *{name}(void) {{ return 0; }}"
    if RETURNS_TEXT.search(name):
        return f"const char *{name}(void) {{ return text; }}"
    return f"long {name}(void) {{ return {NO_DEVICE}; }}"


def write_stub(path: Path, wanted: dict[str, str | None]) -> None:
    """Compile one stand-in library to `path`."""
    marker = re.sub(r"\W", "_", path.name)
    source = ['static const char text[] = "no GPU here: a stand-in library";', f"int tierkeeper_stub_{marker} = 1;"]
    source += [function(name) for name in sorted(wanted)]
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, version in wanted.items():
        if version:
            by_version[version].append(name)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "stub.c").write_text("\n".join(source) + "\n")
        command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", "-Os", "-s", f"-Wl,-soname,{path.name}"]
        if by_version:
            script = "".join(
                f"{v} {{ global: {'; '.join(sorted(names))}; }};\n" for v, names in sorted(by_version.items())
            )
            Path(folder, "versions.map").write_text(script)
            command.append(f"-Wl,--version-script={folder}/versions.map")
        subprocess.run([*command, "-o", str(path), f"{folder}/stub.c"], check=True)


def main(site_packages: str) -> None:
    """Write every stand-in into torch/lib and print one line for each."""
    lib = Path(site_packages, "torch", "lib")
    for library, wanted in sorted(scan(lib).items()):
        write_stub(lib / library, wanted)
        print(f"{library:28s} {len(wanted):4d} symbols")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: cuda_stubs.py SITE_PACKAGES")
    main(sys.argv[1])
