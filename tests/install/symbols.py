#!/usr/bin/env python3
"""Checks what shared libraries of this build export, and what they leave to be found in other libraries.

  symbols.py LIBRARY...

A process may hold other copies of what feedline is made of: TensorFlow exports its own protobuf and zlib to the whole
process. So nothing of feedline's dependencies may be exported, and what is undefined must come from the system's own
libraries, from a dependency whose names nobody else has, or from a library that was named before.
"""
import re
import subprocess
import sys

EXPORTED = re.compile(r"feedline_|_ZNK?8feedline|_ZT[ISV]N8feedline|PyInit__feedline$")
# The C and C++ libraries have versioned symbols, and so have the decoders of pictures; Python's are those of the
# process.
SYSTEM = re.compile(r".*@(GLIBC|GLIBCXX|CXXABI|GCC|LIBJPEG|LIBJPEGTURBO|PNG16)_|_ITM_|__gmon_start__$|__cxa_finalize|Py|_Py")
# oneTBB's are in a namespace that has the version of their ABI.
DEPENDENCY = re.compile(
    r"_ZN3tbb6detail2r1|_ZTIN3tbb6detail2r1|io_uring_|isal_|crc32_gzip_refl$|archive_|"
    r"sodium_|randombytes_|crypto_auth_hmacsha256_"
)


def symbols(library, *options):
    lines = subprocess.run(["nm", "-D", *options, library], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[-1] for line in lines]


def main():
    faults, before = [], set()
    for library in sys.argv[1:]:
        exported = symbols(library, "--defined-only")
        faults += [f"{library} exports {s}" for s in exported if not EXPORTED.match(s)]
        undefined = [s for s in symbols(library, "--undefined-only") if s not in before]
        before.update(exported)
        faults += [f"{library} leaves {s} to be found elsewhere" for s in undefined if not SYSTEM.match(s) and not DEPENDENCY.match(s)]
        print(f"{library}: {len(exported)} exported, {len(undefined)} undefined")
    if faults:
        sys.exit("\n".join(faults[:20]))


if __name__ == "__main__":
    main()
