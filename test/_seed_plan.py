"""Seeds for the fuzzer of the CPU device's executables: the container around small JAX programs, without its checksum."""
import glob
import os
import re
import struct
import sys

import corpus
from jaxlib import _jax

version = re.search(r'XL_VERSION "(.*)"', open(os.path.join(corpus.ROOT,
                                                            "src/base/version.h")).read()).group(1).encode()
options = _jax.CompileOptions().SerializeAsString()
for f in glob.glob(os.path.join(corpus.make(), "*.bc")):
    program = open(f, "rb").read()
    if len(program) < 2500:
        with open(os.path.join(sys.argv[1], os.path.basename(f)), "wb") as out:
            out.write(b"XLANE-CPU-PLAN\n\0" + struct.pack("<QQ", 1, len(version)) + version
                      + struct.pack("<QQ", len(options), len(program)) + options + program)
