"""Compile options against jaxlib's own protobuf: what it writes we read, what we write it reads."""
import os, subprocess, sys, tempfile

import numpy as np
from jaxlib import _jax
from _check import check, end

TOOL = "build/test/tool/pjrt"


def tool(*args):
    return subprocess.run([TOOL, *args], capture_output=True)


def jax_bytes(flags=None, **build):
    """The options as jaxlib serialises them, in a process of its own, for it reads XLA_FLAGS once."""
    code = "import sys\nfrom jaxlib import _jax\no = _jax.CompileOptions()\nb = o.executable_build_options\n"
    for k, v in build.items():
        code += f"{'o' if hasattr(_jax.CompileOptions, k) else 'b'}.{k} = {v}\n"
    code += "sys.stdout.buffer.write(o.SerializeAsString())"
    env = dict(os.environ, XLA_FLAGS=flags or "")
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env)
    assert r.returncode == 0, r.stderr.decode()[-500:]
    return r.stdout


with tempfile.TemporaryDirectory() as d:
    def put(name, data):
        path = os.path.join(d, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def canonical(data):
        r = tool("options", put("in", data))
        assert r.returncode == 0, r.stderr.decode()
        return r.stdout

    def diff(x, y):
        r = tool("diff", put("x", x), put("y", y))
        assert r.returncode == 0, r.stderr.decode()
        return [tuple(line.split("\t")) for line in r.stdout.decode().splitlines()]

    plain = jax_bytes()
    c = canonical(plain)
    check("canonical_is_stable", canonical(c) == c)
    again = _jax.CompileOptions.ParseFromString(c)
    check("jaxlib_reads_our_canonical_form", canonical(again.SerializeAsString()) == c)

    eight = jax_bytes(num_partitions=8, use_spmd_partitioning=True)
    got = diff(plain, eight)
    check("diff_names_what_jaxlib_changed",
          ("executable_build_options.num_partitions", "1", "8", "loud") in got and len(got) == 2, got)
    check("another_option_is_another_canonical_form", canonical(eight) != c)

    dump = jax_bytes("--xla_dump_to=/tmp/nowhere --xla_dump_hlo_as_text=true")
    check("dump_flags_leave_the_canonical_form", dump != plain and canonical(dump) == c)
    check("dump_flags_are_quiet_in_the_diff",
          {x[0].split(".")[-1] for x in diff(plain, dump)} >= {"xla_dump_to"} and all(x[3] == "quiet" for x
              in diff(plain, dump)),
          diff(plain, dump))

    fast = jax_bytes("--xla_cpu_enable_fast_math=true")
    got = diff(plain, fast)
    check("a_flag_by_its_name",
          [x[0] for x in got] == ["executable_build_options.debug_options.xla_cpu_enable_fast_math"], got)

    # A field that jaxlib's Python does not show, appended by hand: executable_build_options { device_memory_size: 16
    # GiB }.
    memory = plain + bytes.fromhex("1a06788080808040")
    got = diff(plain, memory)
    check("device_memory_size_stays_in_the_key", canonical(memory) != c and
          got == [("executable_build_options.device_memory_size", "", str(1 << 34), "loud")], got)

    many = ",".join(f"k{i}=v{i}" for i in range(12))
    check("order_of_a_map_does_not_matter",
          canonical(jax_bytes("--xla_backend_extra_options=" + many)) ==
          canonical(jax_bytes("--xla_backend_extra_options=" + ",".join(reversed(many.split(","))))))

    ours = tool("build", "2", "2", "0", "1", "2", "3").stdout
    theirs = _jax.CompileOptions.ParseFromString(ours)
    b = theirs.executable_build_options
    check("jaxlib_reads_what_we_build", b.num_replicas == 2 and b.num_partitions == 2 and b.use_spmd_partitioning
          and b.use_shardy_partitioner and theirs.profile_version == -1)
    rows = np.array([[0, 1], [2, 3]], dtype=np.int32)
    check("device_assignment_row_by_row",
          _jax.DeviceAssignment.create(rows).serialize() == b.device_assignment.serialize())
    over = {k: v for k, v in theirs.env_option_overrides}
    check("overrides_keep_their_types", over == {"xla_b": True, "xla_i": -7, "xla_s": "text", "xla_f": 0.5}, over)

    bad = 0
    for n in range(len(plain)):
        r = tool("options", put("cut", plain[:n])) if n % 7 == 0 else None
        bad += r is not None and (r.returncode not in (0, 1) or (r.returncode == 1 and b"byte " not in r.stderr))
    check("cut_short_anywhere_is_one_clear_error_or_fine", bad == 0)
    r = tool("options", put("text", b"these are not options"))
    check("not_a_proto", r.returncode == 1 and b"byte" in r.stderr, r.stderr)

sys.exit(end())
